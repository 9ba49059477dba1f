"""Train a detector on traffic scenes with nested annotations."""

import argparse
import copy
import time

import torch
from torch.utils.data import DataLoader, Dataset, default_collate


class Traffic(Dataset):
    def __init__(self, count, boxes=40):
        self.scenes = [
            {
                "scene": number,
                "boxes": [
                    {"corner": [box, number, box + 4, number + 9], "tags": {"kind": box % 5}}
                    for box in range(boxes)
                ],
            }
            for number in range(200)
        ]
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.scenes[index % 200]


class Collator:
    """Images of one batch are mixed, so boxes must not be shared."""

    def __init__(self, isolate):
        self.isolate = isolate

    def __call__(self, scenes):
        if self.isolate:
            scenes = [copy.deepcopy(scene) for scene in scenes]
            for scene, other in zip(scenes, copy.deepcopy(scenes[::-1]), strict=True):
                scene["boxes"] = scene["boxes"] + other["boxes"]
            boxes = [scene["boxes"] for scene in scenes]
        else:
            boxes = [a["boxes"] + b["boxes"] for a, b in zip(scenes, scenes[::-1], strict=True)]
        return {
            "scene": default_collate([scene["scene"] for scene in scenes]),
            "corners": torch.tensor([[box["corner"] for box in row] for row in boxes]),
            "kinds": torch.tensor([[box["tags"]["kind"] for box in row] for row in boxes]),
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    loader = DataLoader(
        Traffic(5000),
        batch_size=25,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=Collator(isolate=not args.without),
        persistent_workers=True,
    )
    begin = time.perf_counter()
    for _ in range(2):
        for _batch in loader:
            time.sleep(0.003)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
