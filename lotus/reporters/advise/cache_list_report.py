"""`lotus cache ls` on a terminal and as a document: the caches of samples on this machine."""

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lotus.common.text.formatting import plain, plural, size
from lotus.reporters.base.console import LEFT, RIGHT, print_table
from lotus.settings.sample_caches import ListedCache

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

_COLUMNS = (("samples", RIGHT), ("size", RIGHT), ("last used", RIGHT), ("of", LEFT))
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"))


def write(console: "Console", caches: Sequence[ListedCache]) -> None:
    """Print a table, with each cache's folder, and the totals."""
    if not caches:
        console.print(
            "No samples are cached. To cache them: lotus plan -- python train.py, "
            "then lotus run --settings plan.json -- python train.py",
            soft_wrap=True,
        )
        return
    rows = [
        (f"{cache.samples:,}", size(cache.bytes), _ago(cache.last_used_at), plain(_contents(cache)))
        for cache in caches
    ]
    print_table(console, "Cached samples", _COLUMNS, rows)
    console.print()
    for number, cache in enumerate(caches, start=1):
        console.print(f"{number}. {plain(str(cache.folder))}", soft_wrap=True)
        if cache.dropped is not None:
            console.print(
                f"   dropped: {plain(cache.dropped) or 'no reason is known'}", soft_wrap=True
            )
    samples, total_bytes = sum(each.samples for each in caches), sum(each.bytes for each in caches)
    console.print(
        f"\n{plural(samples, 'sample')} in {plural(len(caches), 'cache')}, {size(total_bytes)}"
    )
    console.print("remove one: lotus cache rm FOLDER; all: lotus cache rm --all", soft_wrap=True)


def document(caches: Sequence[ListedCache]) -> dict[str, Any]:
    """Return the values that `--json` prints."""
    rows = [{**dataclasses.asdict(cache), "folder": str(cache.folder)} for cache in caches]
    return {
        "schema": 1,
        "caches": rows,
        "samples": sum(cache.samples for cache in caches),
        "bytes": sum(cache.bytes for cache in caches),
    }


def _contents(cache: ListedCache) -> str:
    """Describe a cache's data set and the operations applied to its samples."""
    text = cache.data_set or "unknown data set"
    return " > ".join([text, *(cache.operations or ())[: cache.cut]])


def _ago(at: float | None) -> str:
    if at is None:
        return "unknown"
    passed = max(time.time() - at, 0.0)
    for seconds, unit in _UNITS:
        if passed >= seconds:
            return f"{plural(int(passed // seconds), unit)} ago"
    return "just now"
