"""Follows the hands of puppeteers in clips of video, with boxes for each picture.

Planted: a batch keeps the boxes of each picture as a tensor of its own, hundreds of them, and each
is handed over to the main process by itself.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLIPS, PICTURES, SIDE, BATCH, STEP = 216, 36, 12, 6, 0.07


class Clips(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1289)
        self.clips = torch.rand(24, PICTURES, SIDE, SIDE, generator=generator)
        self.boxes = [
            [
                torch.rand(1 + (clip + picture) % 3, 4, generator=generator)
                for picture in range(PICTURES)
            ]
            for clip in range(24)
        ]

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        clip = self.clips[index % 24]
        boxes = [boxes.clone() for boxes in self.boxes[index % 24]]
        if index % 2:
            clip = clip.flip(2)
            for each in boxes:
                each[:, [0, 2]] = 1 - each[:, [2, 0]]
        return clip, boxes


def with_boxes_of_each(samples):
    return torch.stack([clip for clip, _ in samples]), [boxes for _, boxes in samples]


def with_all_boxes(samples):
    clips, boxes = with_boxes_of_each(samples)
    counts = torch.tensor([[len(each) for each in of_clip] for of_clip in boxes])
    return clips, (torch.cat([each for of_clip in boxes for each in of_clip]), counts)


def centre(boxes):
    """The mean box of each clip."""
    if isinstance(boxes, tuple):
        boxes, counts = boxes
        return torch.stack([each.mean(0) for each in boxes.split(counts.sum(1).tolist())])
    return torch.stack([torch.cat(of_clip).mean(0) for of_clip in boxes])


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.pictures = nn.Linear(SIDE * SIDE, 16)
        self.boxes = nn.Linear(16, 4)

    def forward(self, clips):
        time.sleep(STEP)  # the transformer over pictures, on a card
        return self.boxes(torch.relu(self.pictures(clips.flatten(2))).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1289)
    torch.set_num_threads(1)
    loader = DataLoader(
        Clips(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=with_all_boxes if args.without else with_boxes_of_each,
        persistent_workers=True,
    )
    model = Tracker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for clips, boxes in loader:
            loss = nn.functional.smooth_l1_loss(model(clips), centre(boxes))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
