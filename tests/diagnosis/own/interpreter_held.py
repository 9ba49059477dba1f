"""A thread of the main process computes in Python all the time."""

import threading

import planted


def compute_for_ever():
    while True:
        sum(number * number for number in range(1000))


if __name__ == "__main__":
    args = planted.arguments(samples=1600)
    if not args.without:
        threading.Thread(target=compute_for_ever, daemon=True).start()
    planted.loop(
        planted.Pictures(planted.Compute(0.001), args.samples),
        planted.sleeping(0.001),
        num_workers=args.workers,
    )
