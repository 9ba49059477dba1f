"""Splits of a global batch that know nothing of the ranks."""

import random


def equal(total: int, ranks: int) -> list[int]:
    """The same for each; what is left over goes to the first."""
    each, rest = divmod(total, ranks)
    return [each + (rank < rest) for rank in range(ranks)]


def at_random(total: int, ranks: int, seed: int) -> list[int]:
    """One of all splits with at least one sample each, every one as likely as any other."""
    cuts = sorted(random.Random(seed).sample(range(1, total), ranks - 1))
    return [end - begin for begin, end in zip([0, *cuts], [*cuts, total], strict=True)]
