"""Converts a run into tracks with slices and counters, in pieces, for the timeline formats.

The main process of a rank has tracks for iterations of its loaders, its workers, their feeder
threads (send), the pin thread, other threads that ran operations, the synchronisation of gradients
and, if its steps were timed, the device.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.common.text.formatting import operation_name
from lotus.export.timelines.counter_tracks import Points, points
from lotus.export.timelines.device_steps import place_steps
from lotus.export.timelines.tracks import Track, Tracks
from lotus.export.timelines.whole_times import LATEST, rounded, whole
from lotus.inside.trace.log.log_format import SENDS
from lotus.reading.logs.process_tree import match
from lotus.reading.tables import table_pieces
from lotus.reading.tables.batch_tables import signed

if TYPE_CHECKING:
    from lotus.reading.run import Run
KINDS = (
    "epoch", "wait", "step", "start-up", "idle", "fetch", "sample", "operation", "collate", "send",
    "pin", "backward", "sync", "device",
)  # fmt: skip
(
    EPOCH, WAIT, STEP, STARTUP, IDLE, FETCH, SAMPLE, OPERATION, COLLATE, SEND, PIN, BACKWARD, SYNC,
    DEVICE,
) = range(len(KINDS))  # fmt: skip


class Slices(NamedTuple):
    """Slices as arrays of equal length; -1 means none."""

    track: Ints
    kind: Ints  # place in KINDS
    name: Ints  # place in Chunk.names, of all chunks so far
    start_ns: Ints
    end_ns: Ints  # never before the start
    loader: Ints
    epoch: Ints
    batch: Ints
    sample: Ints
    size: Ints
    step: Ints  # of synchronisations
    flow_out: Ints  # an arrow begins here, and ends at the slice with the same number
    flow_in: Ints  # at the start of a step, at the end of a wait


@dataclass(frozen=True)
class Chunk:
    """A part of a timeline. `names` and `tracks` are those that are new in it."""

    names: list[str]
    tracks: list[Track]
    slices: Slices
    points: Points | None = None
    done: int = 0  # of pieces.whole(run), for a progress bar


class SliceNames:
    """Numbers the names of slices."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._written = 0

    def of(self, name: str) -> int:
        """Return the number of a name; a new name gets the next one."""
        return self.numbers.setdefault(name, len(self.numbers))

    def new(self) -> list[str]:
        """Return the names added since the last call."""
        names = list(self.numbers)[self._written :] if len(self.numbers) > self._written else []
        self._written = len(self.numbers)
        return names


@dataclass
class Timeline:
    """The chunks of a run in order; `notes` is complete after the last one.

    Slices of a track nest or are disjoint, in the order of chunks. Slices that might overlap share
    a track only within a chunk.
    """

    run: "Run"
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = SliceNames()
        self.tracks = Tracks(self.run)
        self._backwards = 0

    def chunks(self, counters: bool = True) -> Iterator[Chunk]:
        """Yield the timeline in chunks, with counters if requested."""
        run, a = self.run, self.run._assembly
        for kind in KINDS:
            self.names.of(kind)
        self._flows()
        yield self._chunk([self._epochs(), self._startups()], None, 0)
        rows_done = 0
        for number in range(len(a.processes)):
            waits = self._waits_of(number)
            for piece in table_pieces.of_process(run, number):
                rows = np.arange(piece.rows.start, piece.rows.stop)
                # Everything within a wait is in the same chunk as the wait.
                until = LATEST
                if waits.at_home:
                    until = int(signed(a.batch["fetch_start_ns"][rows]).max(initial=-LATEST))
                parts = [
                    self._wait_slices(waits.take(until)), self._batches(number, rows),
                    self._samples(number, piece.samples), self._operations(number, piece.ops, True),
                ]  # fmt: skip
                rows_done += table_pieces.size(piece)
                yield self._chunk(parts, None, rows_done)
            loose = table_pieces.loose_of(run, number)
            parts = [self._wait_slices(waits.take(LATEST))]
            if len(loose):
                parts.append(self._operations(number, loose, False))
            yield self._chunk([*parts, *self._device_steps(number)], None, rows_done)
        yield self._chunk(self._transfers(), None, rows_done)
        yield self._chunk(self._syncs(), None, rows_done)
        for part in points(run, self.tracks) if counters else ():
            yield self._chunk([], part, rows_done)
        if self._backwards:
            self.notes.append(
                f"{self._backwards} intervals ended before they began (the clock was set back, or "
                "records are damaged) and have no length here"
            )

    # -- kinds of slices -----------------------------------------------------------------------

    def _epochs(self) -> Slices:
        lanes = {name: column.to_numpy(np.int64) for name, column in self.tracks.iterations.items()}
        start, loader, epoch = lanes["start_ns"], lanes["loader"], lanes["epoch"]
        names = [self.names.of(f"epoch {number}") for number in epoch.tolist()]
        name = np.array(names, np.int64)
        durations = lanes["end_ns"] - start
        return self._slices_of(
            EPOCH, lanes["track"], start, durations, name, loader=loader, epoch=epoch
        )

    def _startups(self) -> Slices:
        workers = self.run.workers
        keys = zip(*(workers[name] for name in ("rank", "host", "pid")), strict=True)
        track = np.array([self.tracks.worker(*key) for key in keys], np.int64)
        durations = (workers["ready_ns"] - workers["loop_ns"]).to_numpy(np.float64)
        good = (track >= 0) & ~np.isnan(durations)
        start = workers["loop_ns"].to_numpy(np.float64)[good]
        loader = workers["loader"].to_numpy()[good]
        return self._slices_of(STARTUP, track[good], start, durations[good], loader=loader)

    def _waits_of(self, number: int) -> "_Waits":
        a = self.run._assembly
        own = a.wait_slices[number]
        start = signed(a.wait["start_ns"][own])
        order = np.argsort(start, kind="stable") + own.start
        home = bool((a.batch["loader"][a.slices[number]] >= 0).any())
        return _Waits(order, np.sort(start), home)

    def _wait_slices(self, rows: Ints) -> Slices:
        a, waits = self.run._assembly, self.run.waits.iloc[rows]
        loader, epoch, batch = (waits[n].to_numpy() for n in ("loader", "epoch", "batch"))
        track = self.tracks.lanes(a.wait_process[rows], loader, epoch)
        start, durations = waits["start_ns"].to_numpy(), waits["wait_ns"].to_numpy()
        ids = {"loader": loader, "epoch": epoch, "batch": batch}
        step = waits["step_ns"].to_numpy()
        had, flow = ~np.isnan(step), self._flow_in[rows]
        # Viewers reverse an arrow that ends at a slice which began earlier. So it ends at the step,
        # which begins when `next` returned the batch, or at the wait if there is no step.
        wait = self._slices_of(
            WAIT, track, start, durations, flow_in=np.where(had, -1, flow), **ids
        )
        ids = {name: values[had] for name, values in ids.items()} | {"flow_in": flow[had]}
        return _joined(
            [wait, self._slices_of(STEP, track[had], (start + durations)[had], step[had], **ids)]
        )

    def _batches(self, number: int, rows: Ints) -> Slices:
        a = self.run._assembly
        rows = rows[(a.batch["flags"][rows] & SENDS) == 0]
        fixed = a.batch[rows]
        track = self._makers(number, a.batch_loader[rows], a.batch_epoch[rows])
        ids = {
            "loader": a.batch_loader[rows],
            "epoch": a.batch_epoch[rows],
            "batch": signed(fixed["batch"]),
        }
        flow = self._flow_out[rows]
        collated = fixed["collate_start_ns"] > 0
        parts = [
            self._slices_of(
                FETCH, track, fixed["fetch_start_ns"], fixed["fetch_ns"],
                size=signed(fixed["size"]), flow_out=np.where(collated, -1, flow), **ids,
            )
        ]  # fmt: skip
        for kind, name in ((COLLATE, "collate"), (IDLE, "idle")):
            had = fixed[f"{name}_start_ns"] > 0
            some = {key: values[had] for key, values in ids.items()}
            some |= {"flow_out": flow[had]} if kind == COLLATE else {}
            start, durations = (fixed[f"{name}_{end}"][had] for end in ("start_ns", "ns"))
            parts.append(self._slices_of(kind, track[had], start, durations, **some))
        return _joined(parts)

    def _samples(self, number: int, samples: pd.DataFrame) -> Slices:
        ids = {n: samples[n].to_numpy() for n in ("loader", "epoch", "batch", "sample")}
        track = self._makers(number, ids["loader"], ids["epoch"])
        return self._slices_of(SAMPLE, track, samples["start_ns"], samples["duration_ns"], **ids)

    def _operations(self, number: int, ops: pd.DataFrame, fetching: bool) -> Slices:
        """Return the operations that the fetching thread ran for a batch, or all others."""
        a = self.run._assembly
        ids = {n: ops[n].to_numpy() for n in ("loader", "epoch", "batch", "sample")}
        tid = ops["tid"].to_numpy()
        fetch = np.isin(tid, np.unique(a.batch["tid"][a.slices[number]])) & (ids["batch"] >= 0)
        chosen = fetch == fetching
        ids = {name: values[chosen] for name, values in ids.items()}
        operation = ops["operation"].cat
        name_numbers = np.array(
            [self.names.of(operation_name(name)) for name in operation.categories], np.int64
        )
        name = (
            name_numbers[operation.codes.to_numpy()[chosen]]
            if len(name_numbers)
            else np.empty(0, np.int64)
        )
        if fetching:
            track = self._makers(number, ids["loader"], ids["epoch"])
        else:
            track = self.tracks.threads(number, tid[chosen])
        start, durations = ops["start_ns"].to_numpy()[chosen], ops["duration_ns"].to_numpy()[chosen]
        return self._slices_of(OPERATION, track, start, durations, name=name, **ids)

    def _transfers(self) -> list[Slices]:
        a, batches = self.run._assembly, self.run.batches
        parts = []
        sent = (batches["send_start_ns"].notna() & batches["send_ns"].notna()).to_numpy()
        sent = sent & (self._frame_of >= 0)
        maker = a.batch_process[self._frame_of[sent]] if sent.any() else np.empty(0, np.int64)
        taker = self.tracks.iterating_processes(
            *(batches[n].to_numpy() for n in ("rank", "loader", "epoch"))
        )
        pinned = batches["pin_start_ns"].notna().to_numpy() & (taker >= 0)
        for kind, had, owner in ((SEND, sent, maker), (PIN, pinned, taker[pinned])):
            some = batches[had]
            track = self.tracks.beside(owner, KINDS[kind])
            ids = {n: some[n].to_numpy() for n in ("loader", "epoch", "batch")}
            start, durations = some[f"{KINDS[kind]}_start_ns"], some[f"{KINDS[kind]}_ns"]
            parts.append(self._slices_of(kind, track, start, durations, **ids))
        return parts

    def _syncs(self) -> list[Slices]:
        """Return backward passes that averaged gradients, and the averaging that outlasted them."""
        syncs = getattr(self.run, "syncs", None)
        if syncs is None or not len(syncs):
            return []
        owner = self.tracks.owners(syncs)
        syncs, owner = syncs[owner >= 0], owner[owner >= 0]
        track = self.tracks.beside(owner, "gradients")
        ids = {"step": syncs["step"].to_numpy()}
        start, ready, end = (syncs[name].to_numpy() for name in ("start_ns", "ready_ns", "end_ns"))
        return [
            self._slices_of(BACKWARD, track, start, ready - start, **ids),
            self._slices_of(SYNC, track, ready, end - ready, **ids),
        ]

    def _device_steps(self, number: int) -> list[Slices]:
        """Return the steps of a device, if one was timed."""
        own = self.run._assembly.wait_slices[number]
        waits = self.run.waits.iloc[own]
        if not len(waits) or "device_busy_ns" not in waits:
            return []
        times = ("start_ns", "wait_ns", "device_idle_ns", "device_busy_ns")
        steps = place_steps(*(waits[name].to_numpy(np.float64) for name in times))
        ids = {n: waits[n].to_numpy()[steps.rows] for n in ("loader", "epoch", "batch")}
        track = self.tracks.beside(np.full(len(steps.rows), number, np.int64), "device, at most")
        durations = steps.end_ns - steps.start_ns
        return [self._slices_of(DEVICE, track, steps.start_ns, durations, **ids)]

    # -- shared by all kinds ------------------------------------------------------------------

    def _makers(self, number: int, loader: Ints, epoch: Ints) -> Ints:
        """Return each batch's track: the iteration if its own process made it, else the worker."""
        owner = np.full(len(loader), number, np.int64)
        return self.tracks.makers(owner, np.asarray(loader), np.asarray(epoch))

    def _flows(self) -> None:
        """Number the arrows from making a batch to taking it, and assign them to both records."""
        a, batches = self.run._assembly, self.run.batches
        rank = a.ranks
        fetch, start = (whole(batches[n], -1) for n in ("fetch_start_ns", "wait_start_ns"))
        mine = [batches[name].to_numpy() for name in ("rank", "loader", "epoch", "batch")]
        frames = (rank[a.batch_process], a.batch_loader, a.batch_epoch, signed(a.batch["batch"]))
        complete = (a.batch["flags"] & SENDS) == 0
        made_at = np.where(complete, rounded(a.batch["fetch_start_ns"]), -2)
        self._frame_of = match((*mine, fetch), (*frames, made_at))
        waits = (rank[a.wait_process], a.wait_loader, a.wait_epoch, signed(a.wait["batch"]))
        wait_of = match((*mine, start), (*waits, rounded(a.wait["start_ns"])))
        linked = np.flatnonzero((self._frame_of >= 0) & (wait_of >= 0))
        self._flow_out = np.full(len(a.batch), -1, np.int64)
        self._flow_in = np.full(len(a.wait), -1, np.int64)
        self._flow_out[self._frame_of[linked]] = linked + 1
        self._flow_in[wait_of[linked]] = linked + 1

    def _slices_of(
        self,
        kind: int,
        track: Ints,
        start: Any,
        durations: Any,
        name: Ints | None = None,
        **ids: Ints,
    ) -> Slices:
        size = len(track)
        begin, length = whole(start), whole(durations)
        self._backwards += int((length < 0).sum())
        none = np.full(size, -1, np.int64)
        named = np.full(size, kind, np.int64) if name is None else name
        kinds, end = np.full(size, kind, np.int64), begin + np.maximum(length, 0)
        columns = dict.fromkeys(Slices._fields[5:], none)
        columns |= {key: np.asarray(values).astype(np.int64) for key, values in ids.items()}
        return Slices(np.asarray(track), kinds, named, begin, end, **columns)

    def _chunk(self, parts: list[Slices], points: Points | None, done: int) -> Chunk:
        slices = _joined(parts)
        return Chunk(self.names.new(), self.tracks.new(), slices, points, done)


@dataclass
class _Waits:
    """The waits of a process in the order of their start, which are consumed up to a time."""

    rows: Ints
    start_ns: Ints
    at_home: bool  # batches are fetched in them
    taken: int = field(default=0, init=False)

    def take(self, until_ns: int) -> Ints:
        first = self.taken
        self.taken = max(first, int(np.searchsorted(self.start_ns, until_ns, side="right")))
        return self.rows[first : self.taken]


def _joined(parts: list[Slices]) -> Slices:
    parts = parts or [Slices(*(np.empty(0, np.int64) for _ in Slices._fields))]
    return Slices(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
