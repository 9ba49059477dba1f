"""The training step computes in as many threads as there are cores, and so do the workers."""

import planted
import torch

if __name__ == "__main__":
    args = planted.arguments()
    if args.without:
        torch.set_num_threads(1)
    planted.loop(
        planted.Pictures(planted.Compute(0.003), args.samples),
        planted.training(planted.convolutions()),
        num_workers=args.workers,
    )
