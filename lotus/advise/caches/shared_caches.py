"""Samples that a loader shares with existing caches, and with other loaders.

Both are known by the keys of cuts: equal keys mean the same samples up to there. The events come
from lotus/inside/isolate/shared_prefixes.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lotus.common.storage import declared
from lotus.inside.cache.cache_folder import cache_name
from lotus.settings import sample_caches
from lotus.settings.tuned_file import Target


@dataclass(frozen=True)
class SharedCache:
    """A cache that a cut has in a place already: this program's or another's with the same prefix.

    cut  its number
    place  kind of the place: RAM or disk
    samples  in it
    bytes  that it takes, which count towards its budget once
    share  the part of this loader's samples that it has
    compression  by which method samples in it are compressed; None: they are not
    program  that made it; None: it is not known
    """

    cut: int
    place: str
    samples: int
    bytes: int
    share: float
    compression: str | None = None
    program: str | None = None


@dataclass(frozen=True)
class OtherLoader:
    """Another loader of the program that makes the same samples up to a cut.

    cut  the last one that both have
    overlap  the part of this loader's samples that the other one makes as well
    """

    loader: Target
    cut: int
    overlap: float


def present_caches(
    events: Sequence[Mapping[str, Any]], folders: Mapping[str, Path]
) -> tuple[SharedCache, ...]:
    """Return the caches of a loader's cuts that are there, by what its program has looked up.

    `folders` are those of the places, by their kinds.
    """
    keys = {event["cut"]: event["key"] for event in events if event.get("event") == "cut"}
    caches = []
    for event in events:
        if event.get("event") != "cached":
            continue
        for kind, folder in folders.items():
            share = event["shares"].get(str(folder))
            key = keys.get(event["cut"])
            cache = None if not share or not key else sample_caches.read(folder / cache_name(key))
            if cache is not None and cache.dropped is None:
                program = cache.command[0] if cache.command else None
                counts = (cache.samples, cache.bytes, share)
                caches.append(SharedCache(event["cut"], kind, *counts, cache.compression, program))
    return tuple(caches)


def other_loaders(events: Sequence[Mapping[str, Any]]) -> tuple[OtherLoader, ...]:
    """Return the other loaders that the program had; one of each kind and place."""
    names = ("number", "call_site", "dataset", "dataset_length", "sampler")
    others: dict[Target, OtherLoader] = {}
    for event in events:
        if event.get("event") == "other_loader":
            fields = {name: event[name] for name in names}
            target = declared.read_as(Target, fields, "another loader")
            others.setdefault(target, OtherLoader(target, event["cut"], event["overlap"]))
    return tuple(others.values())
