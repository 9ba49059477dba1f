"""A validation of few samples takes longer than the training of many."""

import planted

if __name__ == "__main__":
    args = planted.arguments()
    step = planted.sleeping(0.02)
    training = planted.Pictures(planted.Compute(0.0002), args.samples)
    seconds = 0.0002 if args.without else 0.03
    validation = planted.Pictures(planted.Compute(seconds), args.samples // 5)
    planted.loop(training, step, num_workers=args.workers)
    planted.loop(validation, planted.sleeping(0.001), num_workers=args.workers)
