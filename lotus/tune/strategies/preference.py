"""Prefers the cheapest of settings that are about equally fast."""

from __future__ import annotations

from lotus.settings.space import Setting

TIE = 0.02  # a cheaper setting is preferred if it is this much slower at most


def rarity(prefetch: int | None) -> tuple[bool, int]:
    """Return a sort key of prefetch factors; 1 comes last: no slack for irregular batches."""
    return (prefetch == 1, prefetch or 0)


def cost(setting: Setting) -> tuple[int, tuple[bool, int], Setting]:
    """Return a sort key of settings, cheapest first."""
    return (setting.num_workers, rarity(setting.prefetch_factor), setting)
