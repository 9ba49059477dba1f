"""Finds what other loaders and programs have in common with a loader: samples up to a cut.

The key of a cut's cache covers the data set, its code and the operations before the cut, so equal
keys mean the same samples there.
"""

from __future__ import annotations

import os

from ..cache.cache_folder import cache_name
from ..cache.cached_samples import entry_name, inner_of, key_of
from ..cache.fingerprints import FingerprintError
from ..cache.loader_refusal import refusal
from ..cache.transform_place import NoTransformError, TransformPlace, paths
from ..common.clocks import clock
from ..common.guard import quiet
from ..common.loaders import loader_description
from ..common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_LOOKED_UP = 2048  # samples, evenly over the data set
_MOST_INDICES = 4_000_000
_MOST_NS = 5_000_000_000  # for all other loaders together


def cached_shares(
    dataset: Any, key: str, roots: Sequence[str], asked: Sequence[int] | None = None
) -> dict[str, float]:
    """Return which part of a data set's samples is in the caches with a key, by their roots.

    `asked` are the indices that its sampler asks for; None: all.
    """
    shares: dict[str, float] = {}
    indices: Sequence[int] = range(len(dataset)) if asked is None else asked
    step = max(1, len(indices) // _LOOKED_UP)
    looked_up = indices[::step]
    for root in roots:
        folder = os.path.join(root, cache_name(key))
        if not looked_up or not os.path.isdir(folder):
            continue
        cached = 0
        for index in looked_up:
            name = entry_name(key, inner_of(dataset, index)[1])
            cached += name is not None and os.path.exists(f"{folder}/{name[:2]}/{name[2:]}")
        shares[root] = cached / len(looked_up)
    return shares


def sampled_indices(loader: Any) -> list[int] | None:
    """Return the indices that a sampler of a part of the data set asks for; None: it takes all."""
    import sys

    sampler = loader.sampler
    if type(sampler) is sys.modules["torch"].utils.data.SubsetRandomSampler:
        return [int(index) for index in sampler.indices]
    return None


def others(
    loader: Any,
    names: Sequence[str],
    keys: Mapping[int, str],
    kind: type,
    site_of: Callable[[Any], str],
) -> list[dict[str, Any]]:
    """Return the other loaders of the program that make the same samples up to a cut.

    `names` are the operations of this loader, `keys` those of its cuts. Each row has the last cut
    that both have, and which part of this loader's samples the other one makes as well. Loaders
    that the program makes later are not known.
    """
    import gc

    rows, until = [], clock() + _MOST_NS
    own = _indices(loader)
    for other in gc.get_objects():
        if other is loader or not issubclass(type(other), kind) or clock() > until:
            continue
        with quiet(Exception):  # of the program's data sets
            cut = _common_cut(other, names, keys)
            theirs = None if cut is None else _indices(other)
            if own is None or theirs is None or not len(own):
                continue
            common = set(theirs)
            overlap = sum(index in common for index in own) / len(own)
            if overlap:
                row = {"cut": cut, "overlap": overlap, "call_site": site_of(other) or None}
                length, dataset = len(other.dataset), type(other.dataset).__name__
                sampler = loader_description.sampler(other)
                row |= {"dataset": dataset, "dataset_length": length, "sampler": sampler}
                rows.append({"number": None, **row})
    return rows


def _common_cut(other: Any, names: Sequence[str], keys: Mapping[int, str]) -> int | None:
    """Return the last cut up to which another loader makes the same samples; None: there is none.

    Raises what the program's data set raises.
    """
    if refusal(other) is not None:
        return None
    for path in paths(other.dataset):
        try:
            theirs = TransformPlace(other.dataset, path).names()
        except NoTransformError:
            continue
        common = 0
        while common < min(len(names), len(theirs)) and names[common] == theirs[common]:
            common += 1
        for cut in sorted(keys, reverse=True):
            try:
                if cut <= common and key_of(other.dataset, path, cut) == keys[cut]:
                    return cut
            except FingerprintError:
                continue
        return None
    return None


def _indices(loader: Any) -> Sequence[Any] | None:
    """Return the indices, in the data set within all Subsets, of what a loader may ask for."""
    dataset = loader.dataset
    if len(dataset) > _MOST_INDICES:
        return None
    indices = sampled_indices(loader)
    plain = "indices" not in attributes(dataset)
    wanted: Sequence[int] = range(len(dataset)) if indices is None else indices
    return wanted if plain else [inner_of(dataset, index)[1] for index in wanted]
