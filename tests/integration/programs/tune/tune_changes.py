"""Puts other settings on loaders in the midst of an epoch, and prints what comes out of them.

Runs with LOTUS_SETTINGS={"loaders": []}, for lotus's inside to be there. For each change a line:
its name, and whether samples and random numbers were those of the loader left alone.
"""

import itertools
import json
import sys
import warnings

import torch
from _lotus_inside.apply import epoch_handover, settings_applier
from _lotus_inside.tune import iterator_hooks
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler
from torch.utils.data import dataloader as module

warnings.simplefilter("ignore")
SAMPLES = 22


class Numbers(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(SAMPLES))


class Eager:
    """A sampler that draws where it is asked for its iterator."""

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        return iter(torch.randperm(SAMPLES).tolist())


def batches():
    return BatchSampler(RandomSampler(range(SAMPLES)), 5, False)


def generator():
    return torch.Generator().manual_seed(11)


SHAPES = {
    "shuffled": lambda **names: DataLoader(Numbers(), 4, shuffle=True, **names),
    "own_generator": lambda **names: DataLoader(
        Numbers(), 4, shuffle=True, generator=generator(), **names
    ),
    "eager_sampler": lambda **names: DataLoader(Numbers(), 4, sampler=Eager(), **names),
    "batch_sampler": lambda **names: DataLoader(Numbers(), batch_sampler=batches(), **names),
    "no_batches": lambda **names: DataLoader(Numbers(), None, sampler=Eager(), **names),
    "stream": lambda **names: DataLoader(Stream(), 4, **names),
}
KEPT = {"persistent_workers": True}
CHANGES = list(
    itertools.product(
        [{}, {"num_workers": 2}, {"num_workers": 1, **KEPT}],
        [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 2, "prefetch_factor": 3, **KEPT}],
    )
)
# (own, new, epoch and batch of the change). A stream is shared out by none of its workers: one
# gives what none gives.
FEW = [CHANGES[2], CHANGES[3]]
CASES = {
    "shuffled": [
        (*pair, at) for pair in CHANGES for at in ([0, 1], [1, 3]) if pair[0] or at[1] > 1
    ],
    "stream": [({}, {"num_workers": 1}, [0, 3])],
}
applier = settings_applier.active


class Idle:
    """An agent that watches nothing."""

    on = False


module._BaseDataLoaderIter.__next__ = iterator_hooks.next_batch(
    module._BaseDataLoaderIter.__next__, Idle()
)


def epochs(make, own, change, at):
    """All batches of three epochs and random numbers between them."""
    torch.manual_seed(5)
    loader = make(**own)
    seen = []
    for epoch in range(3):
        iterator = iter(loader)
        for number in range(99):
            if change is not None and (epoch, number) == at:
                change(loader, iterator, epoch + 1)
            try:
                batch = next(iterator)
            except StopIteration:
                break
            seen.append(batch if type(batch) is int else batch.tolist())
        seen.append(torch.rand(1).item())
    return seen, loader


def main():
    for shape in sys.argv[1:]:
        make = SHAPES[shape]
        for own, new, at in CASES.get(shape) or [(*pair, [0, 2]) for pair in FEW]:
            done = []

            def change(loader, iterator, epochs, new=new, done=done):
                entry = {"loader": {"number": None}, "setting": new, "iterable_safe": True}
                done.append(epoch_handover.change(applier, loader, iterator, entry, epochs))
                done.append(epoch_handover.KEY in iterator.__dict__)

            plain = epochs(make, own, None, None)[0]
            changed, loader = epochs(make, own, change, tuple(at))
            children = len(torch.multiprocessing.active_children())
            facts = {
                "shape": shape,
                "own": own,
                "new": new,
                "at": at,
                "done": done,
                "same": plain == changed,
                "shown": loader.num_workers == new["num_workers"],
                "left": children - (new["num_workers"] if new.get("persistent_workers") else 0),
            }
            del loader
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
