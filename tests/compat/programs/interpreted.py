"""A small program of loops, failures and warnings that needs a Python alone: see small_torch.

Arguments: how workers start. Prints everything that it gets.
"""

import functools
import os
import sys
import traceback
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "small_torch"))

from torch.utils.data import DataLoader, Dataset


class Scale:
    def __call__(self, value):
        return value * 2.0


class Shift:
    def __call__(self, value, by=1.0):
        return value + by


class Warns:
    def __call__(self, value):
        warnings.warn(f"about {value}", stacklevel=2)
        return value


class Fails:
    def __call__(self, value):
        if value == 7.0:
            raise ValueError("bad number")
        return value


def halve(value):
    return value / 2


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Numbers(Dataset):
    def __init__(self, *more):
        self.transform = Compose(Scale(), Shift(), halve, functools.partial(pow, 1.0), *more)

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return self.transform(float(index))


class Odd(Numbers):
    def __init__(self):
        self.transform = Compose(Scale(), Shift(), Fails())


def loop(name, loader):
    iterator = iter(loader)
    while True:
        try:
            print(name, next(iterator), flush=True)
        except StopIteration:
            break
        except ValueError as error:
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            print(name, "raised", str(error), frames[:1], frames[-1], flush=True)


if __name__ == "__main__":
    warnings.simplefilter("always", UserWarning)  # not of threads beside a fork: there by chance
    warnings.simplefilter("ignore", DeprecationWarning)
    for method in sys.argv[1:]:
        for number in (0, 2):
            context = method if number else None
            loop(f"{method} {number}", DataLoader(Numbers(), 4, number, context))
            loop(f"{method} {number} odd", DataLoader(Odd(), 4, number, context))
    loop("warned", DataLoader(Numbers(Warns()), 10))
    for _ in DataLoader(Odd(), 4):
        pass
