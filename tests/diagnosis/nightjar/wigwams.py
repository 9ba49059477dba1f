"""Learns to find wigwams on old maps, from outlines that surveyors drew point by point.

Planted: the collate function hands the surveyors' outlines over with each batch, as nested lists
of small mappings, of which the training uses nothing but the box around them.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAPS, OUTLINES, POINTS, BATCH, STEP = 1600, 8, 800, 20, 0.06
PAPERS = 40


def outline(rng):
    """Return one outline: its points in order, each with the pen's pressure and a remark."""
    x, y = rng.random(), rng.random()
    return {
        "surveyor": rng.choice(["Ames", "Burt", "Cole"]),
        "points": [
            {"x": x + rng.gauss(0, 0.03), "y": y + rng.gauss(0, 0.03), "pen": rng.random()}
            for _ in range(POINTS)
        ],
    }


def box_of(outline):
    xs, ys = zip(*((point["x"], point["y"]) for point in outline["points"]), strict=True)
    return [min(xs), min(ys), max(xs), max(ys)]


class Maps(Dataset):
    def __init__(self):
        rng = random.Random(269)
        self.outlines = [[outline(rng) for _ in range(OUTLINES)] for _ in range(PAPERS)]
        self.papers = torch.rand(PAPERS, 1, 64, 64, generator=torch.Generator().manual_seed(269))

    def __len__(self):
        return MAPS

    def __getitem__(self, index):
        outlines = self.outlines[index % PAPERS]
        paper = self.papers[index % PAPERS] + 0.05 * torch.randn(1, 64, 64)
        boxes = torch.tensor([box_of(each) for each in outlines])
        return paper, boxes + 0.01 * torch.randn(2).repeat(2), outlines


def with_outlines(samples):
    papers, boxes, outlines = zip(*samples, strict=True)
    copies = [[{**each, "history": each["points"][::-1]} for each in drawn] for drawn in outlines]
    for drawn in copies:
        for each in drawn:
            each["history"] = [{**point} for point in each["history"]]
    return torch.stack(papers), torch.stack(boxes), copies


def with_boxes(samples):
    papers, boxes, _ = with_outlines(samples)
    return papers, boxes, None


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=4),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(4 * OUTLINES),
        )

    def forward(self, papers):
        return self.layers(papers).view(-1, OUTLINES, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(269)
    torch.set_num_threads(1)
    loader = DataLoader(
        Maps(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=with_boxes if args.without else with_outlines,
    )
    model = Finder()
    model(torch.zeros(1, 1, 64, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for papers, boxes, _ in loader:
            loss = nn.functional.l1_loss(model(papers), boxes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the detector, on an accelerator
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
