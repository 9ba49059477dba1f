"""Loading keeps up with a step that needs no CPU."""

import planted

if __name__ == "__main__":
    args = planted.arguments()
    planted.loop(
        planted.Pictures(planted.Compute(0.0005), args.samples),
        planted.sleeping(0.06),
        num_workers=args.workers,
    )
