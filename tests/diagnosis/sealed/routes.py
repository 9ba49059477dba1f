"""Estimate the time of a taxi's ride from its track. Tracks come from the fleet's archive."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Fleet:
    """The archive answers after some milliseconds."""

    def __init__(self, answer_time):
        self.answer_time = answer_time

    def track(self, ride, length):
        time.sleep(self.answer_time)
        draw = random.Random(ride)
        return [(draw.random(), draw.random()) for _ in range(length)]


class Rides(Dataset):
    def __init__(self, count, fleet):
        draw = random.Random(0)
        self.lengths = [draw.randint(10, 60) for _ in range(count)]
        self.fleet = fleet

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, ride):
        length = self.lengths[ride]
        return torch.tensor(self.fleet.track(ride, length)), float(length)


class SimilarLengths(Sampler):
    """Batches of rides of about the same length, in random order."""

    def __init__(self, lengths, batch_size, seed=0):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        self.draw = random.Random(seed)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.draw.shuffle(self.batches)
        return iter(self.batches)


def pad(rides):
    tracks, durations = zip(*rides, strict=True)
    padded = torch.nn.utils.rnn.pad_sequence(tracks, batch_first=True)
    return padded, torch.tensor(durations)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    rides = Rides(2000, Fleet(answer_time=0.003))
    sampler = SimilarLengths(rides.lengths, args.batch_size)
    loader = DataLoader(
        rides,
        batch_sampler=sampler,
        num_workers=args.workers,
        collate_fn=pad,
        persistent_workers=True,
        prefetch_factor=4,
    )
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for _tracks, _durations in loader:
            time.sleep(0.055)  # stands for the accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
