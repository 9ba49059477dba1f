"""Learns the metre of hymns, from short ones to long ones: each stage adds longer hymns."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Subset


class Lexicon:
    """Numbers of words and of their endings, most frequent first."""

    def __init__(self, words):
        counts = {}
        for word in words:
            for part in (word, word[-3:], word[-2:], word[:2]):
                counts[part] = counts.get(part, 0) + 1
        frequent = sorted(counts, key=lambda part: (-counts[part], part))
        self.numbers = {part: number for number, part in enumerate(frequent)}

    def __getitem__(self, word):
        return self.numbers.get(word, 0) % 5000


class Hymns(Dataset):
    def __init__(self, hymns, words):
        self.hymns, self.words, self.lexicon = hymns, words, None

    def __len__(self):
        return len(self.hymns)

    def lookup(self):
        if self.lexicon is None:  # too large to be pickled
            self.lexicon = Lexicon(self.words)
        return self.lexicon

    def __getitem__(self, index):
        lexicon, (text, metre) = self.lookup(), self.hymns[index]
        words = text.split()
        ends = [lexicon[word[-3:]] for word in words]
        return torch.tensor([[lexicon[word] for word in words], ends]).T, metre


def collate(samples):
    texts, metres = zip(*sorted(samples, key=lambda sample: -len(sample[0])), strict=True)
    lengths = torch.tensor([len(text) for text in texts])
    return pad_sequence(texts, batch_first=True), lengths, torch.tensor(metres)


class Reader(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.words = nn.Embedding(5000, size)
        self.reader = nn.GRU(2 * size, 48, batch_first=True)
        self.head = nn.Linear(48, 6)

    def forward(self, texts, lengths):
        embedded = self.words(texts).flatten(2)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True)
        return self.head(self.reader(packed)[1][-1])


def compose(count):
    draw = random.Random(59)
    letters = "aeiouklmnprst"
    words = ["".join(draw.choices(letters, k=draw.randint(3, 9))) for _ in range(240_000)]
    lengths = sorted(draw.randint(12, 60) for _ in range(count))
    return [(" ".join(draw.choices(words, k=n)), draw.randrange(6)) for n in lengths], words


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--stages", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(59)
    hymns = Hymns(*compose(800))
    if args.without:
        hymns.lookup()
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for stage in range(1, args.stages + 1):
        part = Subset(hymns, range(len(hymns) * stage // args.stages))
        loader = DataLoader(
            part, batch_size=24, shuffle=True, num_workers=2, collate_fn=collate,
            persistent_workers=True,
        )  # fmt: skip
        for texts, lengths, metres in loader:
            loss = nn.functional.cross_entropy(model(texts, lengths), metres)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"stage {stage}: {len(part)} hymns, last loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
