"""One of three transforms computes for most of the time."""

import planted


class Pipeline:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Warp(planted.Compute):
    pass


class Crop(planted.Compute):
    pass


class Scale(planted.Compute):
    pass


if __name__ == "__main__":
    args = planted.arguments()
    slow = 0.0005 if args.without else 0.008
    planted.loop(
        planted.Pictures(Pipeline(Crop(0.0005), Warp(slow), Scale(0.0005)), args.samples),
        planted.sleeping(0.004),
        num_workers=args.workers,
    )
