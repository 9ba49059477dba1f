"""Train on a long list of short messages held in memory."""

import argparse
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Messages(Dataset):
    def __init__(self, messages):
        self.messages = messages

    def __len__(self):
        return len(self.messages)

    def __getitem__(self, index):
        message = self.messages[index]
        return len(message["text"]), message["likes"]


class PackedMessages(Dataset):
    def __init__(self, messages):
        self.texts = np.array([message["text"].encode() for message in messages])
        self.likes = np.array([message["likes"] for message in messages])

    def __len__(self):
        return len(self.likes)

    def __getitem__(self, index):
        return len(self.texts[index]), int(self.likes[index])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    rng = random.Random(0)
    messages = [
        {"text": f"message {number} about {rng.random()}", "likes": number % 1000}
        for number in range(500_000)
    ]
    data = PackedMessages(messages) if args.without else Messages(messages)
    del messages
    loader = DataLoader(data, batch_size=4000, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    for _lengths, _likes in loader:
        time.sleep(0.040)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
