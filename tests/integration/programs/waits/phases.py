"""Prints what its own state page says: in a loop, in one within that, and after loops."""

import glob
import os
import sys

from torch.utils.data import DataLoader

PHASE = 3  # its word of the page


def show(where):
    (path,) = glob.glob(os.path.join(sys.argv[1], "state", f"*-{os.getpid()}-*.state"))
    with open(path, "rb") as page:
        words = memoryview(page.read()).cast("q")
    print(where, words[PHASE])


def loader(**settings):
    return DataLoader(list(range(4)), batch_size=2, **settings)


for place, _ in enumerate(loader()):
    if not place:
        show("step")
        for _ in loader():
            pass
        show("step")
show("between")
for _ in loader():
    show("step")
    break
show("between")

for settings in ({"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}):
    batches = loader(**settings)
    for _ in range(2):
        for place, _ in enumerate(batches):
            if not place:
                show("step")
        show("between")
