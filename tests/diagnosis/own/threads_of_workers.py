"""Each worker computes in several threads of torch: more than there are cores."""

import planted
import torch


class Blur:
    def __init__(self):
        self.kernel = torch.ones(8, 3, 7, 7) / 147

    def __call__(self, picture):
        return torch.nn.functional.conv2d(picture[None], self.kernel)[0].mean(0)


def many_threads(worker):
    torch.set_num_threads(4)


if __name__ == "__main__":
    args = planted.arguments()
    planted.loop(
        planted.Pictures(Blur(), args.samples, size=128),
        planted.sleeping(0.002),
        num_workers=args.workers,
        worker_init_fn=None if args.without else many_threads,
    )
