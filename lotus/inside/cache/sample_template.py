"""A sample without what its transform returned, and with it again."""

from __future__ import annotations

from .entry_codec import HOLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def with_hole(sample: Any, result: Any) -> tuple[Any, int]:
    """Return a sample with HOLE in place of `result`, and how many there are."""
    if sample is result:
        return HOLE, 1
    kind = type(sample)
    if kind is dict:
        pairs = [(key, with_hole(value, result)) for key, value in sample.items()]
        return {key: part for key, (part, _) in pairs}, sum(count for _, (_, count) in pairs)
    if kind is list or kind is tuple:
        parts = [with_hole(value, result) for value in sample]
        return kind(part for part, _ in parts), sum(count for _, count in parts)
    return sample, 0


def filled(template: Any, result: Any) -> Any:
    """Return a template with `result` in place of HOLE."""
    if template is HOLE:
        return result
    kind = type(template)
    if kind is dict:
        return {key: filled(value, result) for key, value in template.items()}
    if kind is list or kind is tuple:
        items = [filled(value, result) for value in template]
        return items if kind is list else tuple(items)
    return template
