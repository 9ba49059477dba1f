"""The choice of a cache of samples from measurements: none, or at which cut and where.

Pure: the events come from lotus/inside/isolate/cut_bench.py, the room from cache_room.py. Times are
ns of a sample in its worker: CPU time, and time blocked, with collate and without sending.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lotus.advise.caches.cache_timing import CacheTiming, EpochShares
from lotus.advise.caches.sample_accesses import SampleAccesses
from lotus.advise.caches.shared_caches import OtherLoader, SharedCache
from lotus.advise.costs.predicted_costs import PipelineCost
from lotus.common.numbers import bootstrap
from lotus.common.numbers.array_types import Floats
from lotus.common.storage import declared
from lotus.common.text.formatting import plural
from lotus.inside.cache.sample_store import BLOCK, FOLDERS, HEADER_BYTES
from lotus.settings.tuned_file import Target

RAM, DISK = "RAM", "disk"
LEAST_SAVED = 0.05  # of a sample's time: less is not worth a cache
_LEAST_SELECTED = 0.1  # of the saving, which leaving samples out must add


@dataclass(frozen=True)
class CachePlace:
    """A place for cached samples. Rates are of storage, for all workers together."""

    kind: str  # RAM, DISK
    folder: str | None  # None: the user's cache folder
    budget_bytes: int
    write_bytes_per_s: float = math.inf
    read_bytes_per_s: float = math.inf
    page_cache_bytes: int = 0  # beyond this, cached samples are read from storage again


@dataclass(frozen=True)
class Compression:
    """The cost of samples of a cut with one method; a value for each of its first samples."""

    method: str
    bytes: Floats
    keep_ns: Floats
    fetch_ns: Floats


@dataclass(frozen=True)
class Cut:
    """A cut as it was measured; `why`: it cannot be cached. A value for each sample."""

    number: int
    name: str
    deterministic: bool
    draws: tuple[str, ...]
    why: str | None
    value: str  # in words
    before_ns: Floats
    after_ns: Floats
    bytes: Floats  # empty if it cannot be cached, like the following
    keep_ns: Floats
    fetch_ns: Floats
    before_cpu_ns: Floats  # without time blocked
    compressions: tuple[Compression, ...] = ()
    key: str | None = None  # of its cache; None: it has none

    @property
    def usable(self) -> bool:
        """True if it can be cached, and was measured on all samples."""
        return self.why is None and len(self.bytes) > 0 and len(self.bytes) == len(self.before_ns)


@dataclass(frozen=True)
class PlannedSet:
    """The loader and its data set, as they were measured."""

    loader: Target
    setting: Mapping[str, Any]  # fields of a Setting
    path: tuple[str, ...] | None
    operations: tuple[str, ...]
    length: int | None
    batch_size: int | None
    num_workers: int
    refused: str | None
    files: bool  # files of samples are known, so that changed ones are noticed
    unseen_files: bool
    samples: int  # that were measured
    torch: str | None
    program_bytes: int  # resident memory of the program at its first batch
    accesses: SampleAccesses | None = None  # of its epochs; None: it has no samples with an index
    not_followed: str | None = None  # why they are assumed; None: they were computed
    collate_ns: float | None = None  # of a sample, also with a cache; None: not known


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval over samples."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Offer:
    """The effect of caching samples at one cut in one place, in ns of a sample in its worker.

    It is computed from what was measured of a sample's parts, and decides between offers. What an
    epoch gains is measured afterwards, in training (`CachePlanning.timing`).
    """

    cut: Cut
    place: CachePlace
    compression: str | None  # the method; None: samples are cached as they are
    hits: tuple[float, ...]  # parts of the first epochs' samples; further ones are like the last
    least_ns_per_byte: float  # of CPU time before the cut: samples below are not cached
    share: float  # of the samples that are cached
    kept_bytes: float  # of their files
    whole_bytes: float  # of the budget that all samples would take
    warm: bool  # they are assumed to be read from memory
    now: Interval
    first: Interval  # epoch 1
    later: Interval  # mean from epoch 2 on
    times: Interval  # as many samples from epoch 2 in the same time
    break_even: int | None  # epochs; None: never
    # Of samples that are not left out: of epoch 1, and of later ones in the mean.
    first_shares: EpochShares
    later_shares: EpochShares
    present: float = 0.0  # part of the samples that are cached already
    added_bytes: float = 0.0  # of the others

    @property
    def saved(self) -> float:
        """The part of a sample's time that later epochs save."""
        return 1 - self.later.mean / self.now.mean if self.now.mean else 0.0

    def saved_in(self, epochs: int) -> float:
        """Return the part of the time of so many epochs that it saves in all."""
        now = self.now.mean * epochs
        return 1 - self.total_ns(epochs) / now if now else 0.0

    def total_ns(self, epochs: int) -> float:
        """Return the time of a sample in so many epochs together."""
        return self.first.mean + (epochs - 1) * self.later.mean


@dataclass(frozen=True)
class CachePlanning:
    """The measurements and the choice."""

    data: PlannedSet
    cuts: tuple[Cut, ...]
    places: tuple[CachePlace, ...]
    offers: tuple[Offer, ...]  # the best of each cut and place
    chosen: Offer | None
    reason: str  # of the choice, in a sentence
    epochs: int
    notes: tuple[str, ...] = ()
    shared: tuple[SharedCache, ...] = ()
    others: tuple[OtherLoader, ...] = ()
    costs: PipelineCost | None = None  # of its operations; None: they were not looked at
    timing: CacheTiming | None = None  # of the chosen offer; None: nothing was timed
    is_unknown: bool = False  # the timing leaves open whether it pays

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the timing."""
        return self.timing is not None and self.timing.interrupted


def read(events: Sequence[Mapping[str, Any]]) -> tuple[PlannedSet, tuple[Cut, ...]]:
    """Return what the events of the program say.

    Raises LookupError where they end too early, and ValueError for an invalid field of the loader.
    """
    data = [event for event in events if event.get("event") == "data_set"]
    if not data:
        raise LookupError("the program ended before its samples were measured")
    fields = data[0]
    columns, length = fields["accesses"], fields["length"]
    assumed = SampleAccesses.each_once(length) if length and fields["refused"] is None else None
    planned = PlannedSet(
        loader=declared.read_as(Target, fields["loader"], "the loader"),
        setting=fields["setting"],
        path=None if fields["path"] is None else tuple(fields["path"]),
        operations=tuple(fields["operations"]),
        length=length,
        batch_size=fields["batch_size"],
        num_workers=fields["num_workers"],
        refused=fields["refused"],
        files=fields["files"],
        unseen_files=fields["unseen_files"],
        samples=fields["samples"],
        torch=fields["torch"],
        program_bytes=fields["rss_bytes"] or 0,
        accesses=assumed if columns is None else SampleAccesses.read(columns),
        not_followed=fields["not_followed"],
        collate_ns=fields["collate_ns"],
    )
    return planned, tuple(_cut(event) for event in events if event.get("event") == "cut")


def _cut(event: Mapping[str, Any]) -> Cut:
    def column(name: str) -> Floats:
        return np.asarray(event[name], dtype=np.float64)

    return Cut(
        number=event["cut"],
        name=event["name"],
        deterministic=event["deterministic"],
        draws=tuple(event["draws"]),
        why=event["why"],
        value=event["value"],
        before_ns=column("before_ns") + column("before_blocked_ns"),
        after_ns=column("after_ns") + column("after_blocked_ns"),
        bytes=column("bytes"),
        keep_ns=column("keep_ns"),
        fetch_ns=column("fetch_ns"),
        before_cpu_ns=column("before_ns"),
        key=event["key"],
        compressions=tuple(
            Compression(
                each["method"],
                *(np.asarray(each[name], np.float64) for name in ("bytes", "keep_ns", "fetch_ns")),
            )
            for each in event["compressions"]
        ),
    )


def _compressed(cut: Cut, compression: Compression) -> Cut:
    """Return the cut with samples compressed: bytes and extra times as of its first samples."""
    count = len(compression.bytes)
    plain = float(np.sum(cut.bytes[:count]))

    def scaled(measured: Floats, own: Floats) -> Floats:
        return own + cut.bytes * (float(np.sum(measured - own[:count])) / max(plain, 1.0))

    return replace(
        cut,
        bytes=scaled(compression.bytes, cut.bytes),
        keep_ns=scaled(compression.keep_ns, cut.keep_ns),
        fetch_ns=scaled(compression.fetch_ns, cut.fetch_ns),
    )


def choose(
    data: PlannedSet,
    cuts: Sequence[Cut],
    places: Sequence[CachePlace],
    epochs: int,
    notes: Sequence[str] = (),
    shared: Sequence[SharedCache] = (),
) -> CachePlanning:
    """Return the cut and place with the least time over `epochs`, or why there is none.

    A cache that is `shared` keeps its compression.
    """
    offers: list[Offer] = []
    if data.refused is None and data.accesses is not None:
        there = {(each.cut, each.place): each for each in shared}
        offers = [
            _offer(data, data.accesses, cut, place, compression, epochs, cache)
            for cut in cuts
            if cut.usable
            for place in places
            if place.budget_bytes > 0
            for compression, cache in _methods(cut, there.get((cut.number, place.kind)))
        ]
    worth = [
        offer
        for offer in offers
        if offer.saved >= LEAST_SAVED and offer.saved_in(epochs) >= LEAST_SAVED
    ]
    best = _best([each for each in worth if each.compression is None], epochs)
    smaller = _best([each for each in worth if each.compression is not None], epochs)
    if smaller is not None and (
        best is None or smaller.total_ns(epochs) < (1 - LEAST_SAVED) * best.total_ns(epochs)
    ):
        best = smaller
    reason = _reason(data, cuts, offers, best, epochs)
    return CachePlanning(
        data, tuple(cuts), tuple(places), tuple(offers), best, reason, epochs, tuple(notes),
        tuple(shared),
    )  # fmt: skip


def _methods(
    cut: Cut, shared: SharedCache | None
) -> list[tuple[Compression | None, SharedCache | None]]:
    """Return how samples of a cut may be compressed, each with the cache that is there."""
    methods: list[Compression | None] = [None, *cut.compressions]
    if shared is not None:
        for method in methods:
            if (None if method is None else method.method) == shared.compression:
                return [(method, shared)]
    return [(method, None) for method in methods]


def _best(offers: Sequence[Offer], epochs: int) -> Offer | None:
    """Return the least time; of equals the one with fewer bytes, and RAM, which comes first."""
    return min(offers, key=lambda each: (each.total_ns(epochs), each.kept_bytes), default=None)


def _offer(
    data: PlannedSet,
    accesses: SampleAccesses,
    plain: Cut,
    place: CachePlace,
    compression: Compression | None,
    epochs: int,
    shared: SharedCache | None = None,
) -> Offer:
    cut = plain if compression is None else _compressed(plain, compression)
    length, count = accesses.samples, len(cut.bytes)
    workers = max(1, data.num_workers)
    most = max(2, epochs)
    known = min(most, len(accesses.accesses))
    later_mean = partial(_later_mean, known, most)
    density = cut.before_cpu_ns / np.maximum(cut.bytes, 1.0)
    files = file_bytes(cut.bytes)
    present = 0.0 if shared is None else shared.share

    def filled(least: float) -> tuple[float, Floats, Floats]:
        return _filling(accesses, known, files[density >= least], count, place, shared)

    def times_with(fits: float, kept: Any) -> tuple[bool, Floats, Floats]:
        """Return (warm, ns of a cached sample to write, and to read)."""
        bytes_cached = fits * length * float(np.mean(files * kept))
        warm = bytes_cached <= place.page_cache_bytes or math.isinf(place.read_bytes_per_s)
        # The workers share the rates of the storage.
        write = cut.bytes * (workers / place.write_bytes_per_s * 1e9)
        read = cut.bytes * (0.0 if warm else workers / place.read_bytes_per_s * 1e9)
        return warm, cut.keep_ns + write, cut.fetch_ns + read

    def saved_ns(least: float) -> float:
        kept = density >= least
        fits, hits, _ = filled(least)
        _, _, fetch = times_with(fits, kept)
        return later_mean(hits) * float(np.mean((cut.before_ns - fetch) * kept))

    least = _threshold(density, saved_ns)
    kept = density >= least
    fits, hits, written = filled(least)
    warm, keep, fetch = times_with(fits, kept)
    now = cut.before_ns + cut.after_ns + (data.collate_ns or 0.0)
    added, saved = kept * keep, kept * (cut.before_ns - fetch)
    first = now + written[0] * added - hits[0] * saved
    later = now + later_mean(written) * added - later_mean(hits) * saved
    drawn = bootstrap.draw(count, 1, np.random.default_rng(0)) / count
    return Offer(
        cut=plain,
        place=place,
        compression=None if compression is None else compression.method,
        hits=tuple((hits * np.mean(kept))[:epochs].tolist()),
        least_ns_per_byte=least,
        share=fits * float(np.mean(kept)),
        kept_bytes=fits * length * float(np.mean(files * kept)),
        added_bytes=(fits - present) * length * float(np.mean(files * kept)),
        present=present,
        whole_bytes=length * float(np.mean(files)) + folder_bytes(length),
        warm=warm,
        now=_interval(now.mean(), drawn @ now),
        first=_interval(first.mean(), drawn @ first),
        later=_interval(later.mean(), drawn @ later),
        times=_interval(_ratio(now.mean(), later.mean()), _ratio(drawn @ now, drawn @ later)),
        break_even=_break_even(written * np.mean(added) - hits * np.mean(saved)),
        first_shares=EpochShares(float(hits[0]), float(written[0])),
        later_shares=EpochShares(later_mean(hits), later_mean(written)),
    )


def _filling(
    accesses: SampleAccesses,
    epochs: int,
    files: Floats,
    count: int,
    place: CachePlace,
    shared: SharedCache | None,
) -> tuple[float, Floats, Floats]:
    """Return the share of samples that fit, and of accesses the hits and what is written, by epoch.

    `files` are those of samples that may be cached, of `count` that were measured. What is cached,
    now or already, is taken to be spread over the order of accesses by chance.
    """
    present, taken = (0.0, 0) if shared is None else (shared.share, shared.bytes)
    wanted = accesses.samples * len(files) / count * (1 - present)
    fits = 1.0
    if wanted:
        room = samples_in(max(0, place.budget_bytes - taken), float(np.mean(files)))
        fits = min(1.0, room / wanted)
    hits, written = accesses.shares(fits * accesses.samples, epochs)
    absent = 1 - present
    return present + absent * fits, present + absent * hits, absent * written


def _later_mean(known: int, most: int, shares: Floats) -> float:
    """Return the mean of `most` epochs from the second on; unknown ones are like the last."""
    return float(np.sum(shares[1:]) + (most - known) * shares[-1]) / (most - 1)


def file_bytes(sizes: Floats) -> Floats:
    """Return what samples of these sizes take of a budget."""
    return np.ceil((sizes + HEADER_BYTES) / BLOCK) * BLOCK


def folder_bytes(samples: float) -> float:
    """Return what the folders for so many samples take of it; which one is by chance."""
    return BLOCK * FOLDERS * (1 - math.pow(1 - 1 / FOLDERS, samples))


def samples_in(budget_bytes: float, mean_bytes: float) -> float:
    """Return how many samples find room, where their files take so many bytes in the mean."""
    samples = most = budget_bytes / mean_bytes
    for _ in range(50):
        samples = max(0.0, most - folder_bytes(samples) / mean_bytes)
    return samples


def _break_even(added: Floats) -> int | None:
    """Return after how many epochs a cache has saved what it cost; None: never.

    `added` is the time that it adds to a sample, epoch by epoch; further epochs are like the last.
    """
    costs = np.cumsum(added)
    (paid,) = np.nonzero(costs <= 0)
    if np.all(added >= 0):
        return None
    if len(paid):
        return int(paid[0]) + 1
    return len(added) + math.ceil(costs[-1] / -added[-1]) if added[-1] < 0 else None


def _threshold(density: Floats, saved_ns: Callable[[float], float]) -> float:
    """Return the least ns per byte of samples that are cached: 0 unless others save clearly more.

    Times of equal samples differ by chance, so a small difference is none.
    """
    best, most = 0.0, saved_ns(0.0)
    needed = most * (1 + _LEAST_SELECTED) if most > 0 else 0.0
    for least in sorted(set(density.tolist())):
        saved = saved_ns(least)
        if saved > needed and saved > most:
            best, most = least, saved
    return best


def _ratio(now: Any, later: Any) -> Any:
    return now / np.maximum(later, 1.0)


def _interval(mean: Any, replicates: Floats) -> Interval:
    low, high = np.quantile(replicates, (0.025, 0.975))
    return Interval(float(mean), float(low), float(high))


def _reason(
    data: PlannedSet,
    cuts: Sequence[Cut],
    offers: Sequence[Offer],
    best: Offer | None,
    epochs: int,
) -> str:
    if data.refused is not None:
        return f"Samples cannot be cached: {data.refused}"
    if best is not None:
        where = "in RAM" if best.place.kind == RAM else "on disk"
        how = "" if best.compression is None else f", compressed ({best.compression})"
        return f"Cache what comes from {best.cut.name}, {where}{how}"
    if not any(cut.usable for cut in cuts):
        why = next((cut.why for cut in cuts if cut.why is not None), "no sample was measured")
        return f"Do not cache samples: no cut can be cached; already at the first one, {why}"
    if not offers:
        return "Do not cache samples: there is no room for them"
    offer = max(offers, key=lambda each: each.saved)
    if offer.saved < LEAST_SAVED:
        saved = max(0.0, offer.saved)
        return (
            f"Do not cache samples: the best cut, after {offer.cut.name}, would save {saved:.1%} "
            f"of a sample's time, less than {LEAST_SAVED:.0%}"
        )
    soonest = min((each.break_even for each in offers if each.break_even), default=0)
    if soonest <= epochs:
        saved = max(0.0, *(offer.saved_in(epochs) for offer in offers))
        return (
            f"Do not cache samples: in {plural(epochs, 'epoch')} the best cut would save "
            f"{saved:.1%} of their time, less than {LEAST_SAVED:.0%}"
        )
    are = "is" if epochs == 1 else "are"
    return f"Do not cache samples: it would pay from {soonest} epochs on, and there {are} {epochs}"
