"""Look up the rows of a user one by one in a manager's list, from a transform."""

import argparse
import multiprocessing
import time

import torch
from torch.utils.data import DataLoader, Dataset


class History:
    """A transform: the last purchases of a user, each a round trip to the manager's process."""

    def __init__(self, purchases):
        self.purchases = purchases

    def __call__(self, user):
        return torch.tensor([self.purchases[(user * 7 + back) % 5000] for back in range(40)])


class Users(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 960

    def __getitem__(self, user):
        return self.transform(user)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="a plain list, shared by the fork")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    purchases = [[place % 97, place % 11, place] for place in range(5000)]
    manager = None if args.without else multiprocessing.Manager()
    kept = purchases if manager is None else manager.list(purchases)
    loader = DataLoader(Users(History(kept)), batch_size=32, num_workers=args.workers)
    begin = time.perf_counter()
    for _batch in loader:
        time.sleep(0.001)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
