"""Splits of a global batch that ignore measurements."""

import random


def equal(total: int, ranks: int) -> list[int]:
    """Return equal shares; the first ranks get the remainder."""
    share, remainder = divmod(total, ranks)
    return [share + (rank < remainder) for rank in range(ranks)]


def at_random(total: int, ranks: int, seed: int) -> list[int]:
    """Return a random split with at least one sample each; all splits are equally likely."""
    cuts = sorted(random.Random(seed).sample(range(1, total), ranks - 1))
    return [end - begin for begin, end in zip([0, *cuts], [*cuts, total], strict=True)]
