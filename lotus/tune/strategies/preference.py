"""Which setting is chosen of those that are about as fast: the one that takes least."""

from __future__ import annotations

from lotus.settings.space import Setting

TIE = 0.02  # who is so little slower and cheaper is preferred


def rarity(prefetch: int | None) -> tuple[bool, int]:
    """One batch ahead leaves no slack for what no model knows: the last that is only predicted."""
    return (prefetch == 1, prefetch or 0)


def cost(setting: Setting) -> tuple[int, tuple[bool, int], Setting]:
    """What is preferred of equals: the least."""
    return (setting.num_workers, rarity(setting.prefetch_factor), setting)
