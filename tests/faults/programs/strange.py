"""Iterates with whatever torch is found first on the path."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "strange"))

from torch.utils.data import DataLoader

for _ in range(2):
    print(list(DataLoader(list("abcd"))))
