"""The main process makes small batches in all of torch's threads, on a machine that is busy."""

import planted
import torch
from threads_of_workers import Blur

if __name__ == "__main__":
    args = planted.arguments()
    if args.without:
        torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(122 * 122, 10))
    planted.loop(planted.Pictures(Blur(), args.samples, size=128), planted.training(model))
