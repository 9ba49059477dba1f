"""Learns an embedding of flute tones; retrieval is rated after each epoch."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mean_average_precision(embeddings, labels):
    """Rates, for each tone, how high tones of its player are ranked."""
    vectors, labels = embeddings.tolist(), labels.tolist()
    precisions = []
    for query, vector in enumerate(vectors[:250]):
        scores = []
        for other, candidate in enumerate(vectors):
            if other != query:
                product = sum(a * b for a, b in zip(vector, candidate, strict=True))
                scores.append((product, labels[other] == labels[query]))
        scores.sort(reverse=True)
        hits, total = 0, 0.0
        for rank, (_, same) in enumerate(scores, 1):
            if same:
                hits += 1
                total += hits / rank
        precisions.append(total / max(hits, 1))
    return sum(precisions) / len(precisions)


def rate_by_matrix(embeddings, labels):
    """The same by one product of matrices."""
    scores = embeddings[:250] @ embeddings.T
    scores.fill_diagonal_(-torch.inf)
    order = scores.argsort(1, descending=True)[:, :-1]
    same = (labels[order] == labels[:250, None]).float()
    ranks = torch.arange(1, same.shape[1] + 1)
    precision = (same.cumsum(1) / ranks * same).sum(1) / same.sum(1).clamp(min=1)
    return precision.mean().item()


class ToneNet(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 32, 16, stride=4), nn.ReLU(), nn.Conv1d(32, 64, 8, stride=4), nn.ReLU(),
            nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(256, size),
        )  # fmt: skip

    def forward(self, tones):
        return nn.functional.normalize(self.body(tones), dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    rate = rate_by_matrix if args.without else mean_average_precision
    torch.set_num_threads(1)
    torch.manual_seed(11)
    tones, players = torch.randn(2400, 1, 1024), torch.randint(40, (2400,))
    loader = DataLoader(TensorDataset(tones, players), batch_size=48, shuffle=True, num_workers=1)
    model, head = ToneNet(), nn.Linear(32, 40)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        seen, labels = [], []
        for batch, player in loader:
            embedding = model(batch)
            loss = nn.functional.cross_entropy(head(embedding) * 8, player)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(embedding.detach())
            labels.append(player)
        rating = rate(torch.cat(seen), torch.cat(labels))
        print(f"epoch {epoch}: loss {loss.item():.4f}, mean average precision {rating:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
