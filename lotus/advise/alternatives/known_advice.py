"""Advice that is not tried here: on files, objects that workers copy, and threads of libraries.

It rests on what the program was seen to do, and says that nobody has measured here what it gains.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lotus.common.text.formatting import plural, share, size

_SMALL = 256 << 10  # bytes of a file that is small
_THREADED = 0.1  # share of the CPU time of samples, from which threads of libraries count


def known_advice(habits: Mapping[str, Any], workers: int, *, storage: bool = True) -> list[str]:
    """Return sentences on what lotus/inside/isolate/data_habits.py saw.

    Without `storage`, the loop was shown not to wait for it.
    """
    of_workers = [*_on_objects(habits), *_on_threads(habits, workers)] if workers else []
    return [*_on_files(habits, storage), *of_workers]


def _on_files(habits: Mapping[str, Any], storage: bool) -> list[str]:
    made = []
    samples = habits["samples"]
    for path, known in habits["again"]:
        of = "" if known is None else f" ({size(known)})"
        made.append(
            f"{os.path.basename(path)}{of} was opened again for each of "
            f"{plural(samples, 'sample')}: open it once in each worker, when it makes "
            "its first sample, and keep it open; what that gains was not measured"
        )
    small = habits["own_bytes"]
    of_its_own = habits["own_files"] >= samples > 1
    if storage and of_its_own and small is not None and small <= _SMALL:
        made.append(
            f"each sample has a file of its own, of {size(small)} in the median: where storage has "
            "a share of the loop's time, fewer and larger files (tar, LMDB, Arrow) may be read "
            "faster; what that gains was not measured"
        )
    return made


def _on_objects(habits: Mapping[str, Any]) -> list[str]:
    return [
        f"the data set's {name} holds {count:,} Python objects ({kind}), some {size(known)}: "
        "workers that are forked come to copy this memory as they read it; numpy arrays, tensors "
        "or an Arrow table are shared; how much memory that saves was not measured"
        for name, count, kind, known in habits["objects"]
    ]


def _on_threads(habits: Mapping[str, Any], workers: int) -> list[str]:
    own_ns, library_ns = habits.get("used_ns") or (0, 0)
    if library_ns < _THREADED * (own_ns + library_ns) or not library_ns:
        return []
    each = "each of them has" if workers > 1 else "it has"
    return [
        f"threads of libraries, as those of OpenCV or OpenBLAS, had "
        f"{share(library_ns / (own_ns + library_ns))} of the CPU time of the samples that were "
        f"taken. With {plural(workers, 'worker')}, {each} such threads, and they compete for the "
        "cores: lotus tune -- COMMAND tries one thread a worker"
    ]
