"""Two forked processes that sort for a moment."""

import os
import random

children = []
for seed in range(2):
    child = os.fork()
    if not child:
        random.seed(seed)
        for _ in range(20):
            sorted(random.random() for _ in range(20_000))
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
