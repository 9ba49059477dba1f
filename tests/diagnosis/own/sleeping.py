"""Each sample sleeps, as one that asks a slow service."""

import time

import planted


class Ask:
    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, value):
        time.sleep(self.seconds)
        return value


if __name__ == "__main__":
    args = planted.arguments()
    planted.loop(
        planted.Pictures(Ask(0.0 if args.without else 0.008), args.samples),
        planted.sleeping(0.02),
        num_workers=args.workers,
    )
