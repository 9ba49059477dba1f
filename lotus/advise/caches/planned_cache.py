"""`lotus plan`: measures a program's samples, and chooses which part to cache, and where."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lotus.advise.caches import cache_blocks, cache_decision, cache_plan, cache_room, shared_caches
from lotus.advise.caches.cache_plan import CachePlace, CachePlanning, Cut, Offer, PlannedSet
from lotus.advise.caches.cache_timing import CacheTiming
from lotus.advise.costs import cost_library
from lotus.advise.costs.predicted_costs import PipelineCost, pipeline_cost
from lotus.common.errors import LotusError
from lotus.common.machine import host, memory_headroom
from lotus.common.terminal.stderr import say
from lotus.common.text.formatting import plural
from lotus.inside.cache.cache_folder import memory_root, users_root
from lotus.mapping import isolated_runner
from lotus.settings import scratch_folders, tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Entry, SampleCache, Tuned
from lotus.tune.session import program_pipe, subprocess_tuning


@dataclass(frozen=True)
class CacheLimits:
    """Limits of the cache, and its folder on disk; 0: nothing there, None: what is free allows."""

    ram_bytes: int | None = None
    disk_bytes: int | None = None
    folder: Path | None = None


def attempt(
    command: Sequence[str],
    limits: CacheLimits,
    *,
    loader: int | str | None = None,
    samples: int = 24,
    epochs: int = 10,
    samples_s: float = 60.0,
    budget_s: float = 60.0,
) -> CachePlanning:
    """Start a command up to its loader, measure its samples and choose.

    `loader` is a loader's number by first iteration, the class of its data set, the place that
    makes it or its name; None the largest. Samples are measured for at most `samples_s`, and blocks
    of training for `budget_s`; 0: none is. Raises LotusError where the command cannot be started,
    or where it iterates no such loader.
    """
    headroom = memory_headroom.memory()
    in_memory = cache_room.SHARED_MEMORY.is_dir()
    with _scratch(Path(memory_root() if in_memory else users_root())) as scratch:
        events, notes = isolated_runner.measure_cuts(
            command,
            scratch / "run",
            scratch / "samples",
            loader=loader,
            samples=samples,
            epochs=epochs,
            budget_s=samples_s,
            roots=[memory_root(), str((limits.folder or Path(users_root())).absolute())],
        )
    data, cuts = _read(events, notes)
    if data.refused is None and data.samples < min(samples, data.length or 0):
        notes.append(f"only {plural(data.samples, 'sample')} could be measured in {samples_s:g} s")
    places: list[CachePlace] = []
    if data.refused is None:
        room, more = cache_room.ram(limits.ram_bytes, data.program_bytes)
        places.append(room)
        notes += more
        if limits.disk_bytes != 0:
            left = 0 if headroom is None else headroom.free - data.program_bytes
            on_disk, more = cache_room.disk(limits.disk_bytes, limits.folder, left)
            places += [] if on_disk is None else [on_disk]
            notes += more
    folders = {each.kind: Path(each.folder or users_root()).absolute() for each in places}
    shared = shared_caches.present_caches(events, folders)
    planning = cache_plan.choose(data, cuts, places, epochs, notes, shared)
    costs, more = _costs(events)
    planning = replace(
        planning,
        others=shared_caches.other_loaders(events),
        costs=costs,
        notes=(*planning.notes, *more),
    )
    if planning.chosen is None:
        return planning
    return cache_decision.with_timing(planning, _timed(planning, command, loader, budget_s))


def predict(command: Sequence[str], loader: int | str | None = None) -> CachePlanning:
    """Start a command up to its loader, and predict the costs of its operations; measure nothing.

    The predictions are from what earlier plans have measured. Raises LotusError as `attempt`.
    """
    with _scratch(Path(users_root())) as scratch:
        events, notes = isolated_runner.look_at_operations(
            command, scratch / "run", scratch / "samples", loader
        )
    data, _ = _read(events, notes)
    costs, more = _costs(events)
    if data.refused is not None:
        reason = f"Nothing is predicted: {data.refused}"
    elif costs.predicted is None:
        reason = "Nothing is predicted: no earlier plan has measured these operations here"
    else:
        reason = "This is predicted from earlier plans; nothing was measured"
    return CachePlanning(
        data, (), (), (), None, reason, 0, (*notes, *more), costs=costs
    )  # fmt: skip


def _read(
    events: Sequence[Mapping[str, Any]], notes: list[str]
) -> tuple[PlannedSet, tuple[Cut, ...]]:
    """Return what the events say, and note what failed. Raises LotusError."""
    notes += [str(event["error"]) for event in events if event.get("event") == "fault"]
    try:
        return cache_plan.read(events)
    except (LookupError, ValueError) as error:
        raise LotusError("; ".join([str(error.args[0]), *notes])) from None


def _costs(events: Sequence[Mapping[str, Any]]) -> tuple[PipelineCost, list[str]]:
    """Return what the operations were predicted to cost, and record what was measured of them."""
    cpu = str(host.facts()["cpu"]["model"])
    operations = [event for event in events if event.get("event") == "operation"]
    records, notes = cost_library.read([event["key"] for event in operations if event["key"]])
    return pipeline_cost(operations, records, cpu), notes + cost_library.add(operations, cpu)


def _timed(
    planning: CachePlanning, command: Sequence[str], loader: int | str | None, budget_s: float
) -> CacheTiming:
    """Start the command again, and measure blocks with what was chosen and without it."""
    chosen = planning.chosen
    assert chosen is not None
    shares = chosen.first_shares, chosen.later_shares

    def unknown(why: str, interrupted: bool = False) -> CacheTiming:
        return CacheTiming((), 0, 0, 0.0, *shares, interrupted=interrupted, ended=why)

    if not budget_s:
        return unknown("no block was timed, as --budget 0s says")
    if not chosen.warm:
        return unknown("the cache is larger than free memory, and is read from the disk")
    timings: list[CacheTiming] = []
    say(
        "lotus: the program is started again, and trains with cached samples and without, in turn, "
        f"for about {budget_s:g} s"
    )
    with _scratch(Path(chosen.place.folder or users_root())) as scratch:

        def measure(program: program_pipe.PipedProgram) -> CacheTiming:
            timings.append(
                cache_blocks.measure(program, scratch, shares, budget_s, planning.epochs)
            )
            return timings[0]

        result = subprocess_tuning.measure(
            command,
            measure,
            loader=planning.data.loader.call_site if loader is None else loader,
            cache={**asdict(_cache(planning, chosen)), "folder": str(scratch)},
            hints=program_pipe.NO_HINTS,
        )
    if not timings:  # also rounds before a failure or Ctrl-C count
        why = "it was interrupted" if result.interrupted else result.problem
        return unknown(why or "the program ended before a block was timed", result.interrupted)
    if result.interrupted:  # also in the program's own code, which has ended then
        return replace(timings[0], interrupted=True, ended="it was interrupted")
    return timings[0]


@contextlib.contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """Make a folder for samples that are cached to be measured. Raises LotusError."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folders.made(root))
        except OSError as error:
            raise LotusError(
                f"no samples can be cached in {root}: {error.strerror or error}"
            ) from None
        yield folder


def settings(planning: CachePlanning, command: Sequence[str]) -> Tuned | None:
    """Return the choice as a file of settings.

    None where no samples are to be cached, and where Ctrl-C came before that was known.
    """
    chosen, data = planning.chosen, planning.data
    if chosen is None or (planning.interrupted and planning.is_unknown):
        return None
    setting = Setting.from_json(data.setting)
    entry = Entry(data.loader, setting, setting, cache=_cache(planning, chosen))
    return tuned_file.found_for([entry], command, torch=data.torch)


def _cache(planning: CachePlanning, chosen: Offer) -> SampleCache:
    data = planning.data
    return SampleCache(
        path=data.path,
        cut=chosen.cut.number,
        operations=data.operations,
        folder=chosen.place.folder,
        budget_bytes=chosen.place.budget_bytes,
        least_ns_per_byte=chosen.least_ns_per_byte,
        compression=chosen.compression,
    )
