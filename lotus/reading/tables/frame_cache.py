"""Holds the frames of a run's logs in memory while tables are made of them.

Once the tables `batches`, `waits`, `epochs` and `workers` exist, what is left to be read are
samples and operations. Locating them needs a fifth of the frames' memory, so a large run frees the
rest; code that needs it later reads the logs again.
"""

import copy
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from lotus.common.storage import long_arrays
from lotus.reading.logs.event_log import EventLog
from lotus.reading.logs.frame_scanner import EXPECTED, Array, join, narrow
from lotus.reading.logs.process_tree import Assembly, Process
from lotus.reading.tables.batch_tables import LONG, Waits, follow

# Fewer frames need too little memory to matter.
MANY = 1 << 17
_TABLES = ("batches", "waits", "epochs", "workers")
# Fields of which the tables of samples and operations are made; beside them the numbers of rows of
# the frame's arrays.
_KEPT = {"batch": ("worker", "batch", "tid", "flags"), "wait": ()}
# And where operations outside samples are to be given to the batch in whose fetch they lie.
_OF_LOOSE = {"batch": ("fetch_start_ns", "fetch_ns"), "wait": ()}


class FrameCache:
    """The assembly of a run, and as much of its frames as is still needed."""

    def __init__(self, assembly: Assembly) -> None:
        self._whole: Assembly | None = assembly
        self._left = weakref.ref(assembly)  # used by others once the frames were freed
        self._waits: Waits | None = None
        self._to_make = set(_TABLES)
        # With at least the fields that locate the samples and operations of the frames.
        self.outline = assembly

    @property
    def whole(self) -> Assembly:
        """The assembly with all of its frames, which this object keeps from then on."""
        self._whole = self.once
        return self._whole

    @property
    def once(self) -> Assembly:
        """The assembly with all of its frames, not kept. Raises LotusError if a log has changed."""
        return self._whole or self._left() or _read_again(self.outline)

    @property
    def waits(self) -> Waits:
        """The result of `follow` for the frames."""
        if self._waits is None:
            self._waits = follow(self.whole)
        return self._waits

    def made(self, table: str) -> None:
        """Note that a table was made; with the last one, give back what nothing else needs."""
        if table not in self._to_make or self._whole is None:
            return
        self._to_make.remove(table)
        if self._to_make:
            return
        self._waits = None
        # Counts are joined with all columns of their batches.
        counted = any(len(process.log.fixed["counts"]) for process in self._whole.processes)
        if len(self._whole.batch) + len(self._whole.wait) >= MANY and not counted:
            self.outline = _outline(self._whole)
            self._whole = None


def _outline(a: Assembly) -> Assembly:
    """Return the assembly with the fields alone that reading samples and operations takes."""
    part = copy.copy(a)
    part.__dict__.pop("sends", None)
    for name in ("wait_process", "wait_loader", "wait_epoch"):
        delattr(part, name)
    part.batch_loader, part.batch_epoch = (
        long_arrays.kept(keys.astype(np.int32)) for keys in (a.batch_loader, a.batch_epoch)
    )
    loose = any(
        some["n_loose"].any()
        for process in a.processes
        for name in ("batch", "wait", "loose")
        for some in long_arrays.parts(process.log.fixed[name])
    )
    part.batch, part.wait = (
        _narrowed(frames, _dtype(name, _KEPT[name] + (_OF_LOOSE[name] if loose else ())))
        for name, frames in (("batch", a.batch), ("wait", a.wait))
    )
    slices = {
        id(process): {"batch": part.batch[batches], "wait": part.wait[waits]}
        for process, batches, waits in zip(a.processes, a.slices, a.wait_slices, strict=True)
    }

    def without(process: Process) -> EventLog:
        log = process.log.holding(slices[id(process)])
        log.sends, log.pins = log.sends[:0].copy(), log.pins[:0].copy()
        del log.samples_ns
        return log

    part.processes = _with_logs(a, without)
    return part


def _narrowed(frames: Array, dtype: "np.dtype[np.void]") -> Array:
    """Return all rows with these fields; a few at a time are in memory."""
    parts = (narrow(frames[at : at + LONG], dtype) for at in range(0, len(frames), LONG))
    return join([long_arrays.kept(part) for part in parts], dtype)


def _dtype(frame: str, names: tuple[str, ...]) -> "np.dtype[np.void]":
    fixed = EXPECTED[frame].fixed
    chosen = [name for name in fixed.names or () if name in names or name.startswith("n_")]
    return np.dtype([(name, fixed[name]) for name in chosen])


def _read_again(outline: Assembly) -> Assembly:
    """Return the assembly with all frames, without pins and the sums of samples."""

    def whole(process: Process) -> EventLog:
        log = process.log.holding({name: process.log.frames(name) for name in _KEPT})
        log.sends = log.arrays("batch", ("sends",))["sends"]
        return log

    result = copy.copy(outline)
    result.processes = _with_logs(outline, whole)
    result.join_frames()
    return result


def _with_logs(a: Assembly, log: Callable[[Process], EventLog]) -> list[Process]:
    """Return copies of the processes with other logs."""
    copies: Mapping[int, Process] = {id(process): copy.copy(process) for process in a.processes}
    for process in a.processes:
        mine = copies[id(process)]
        mine.log = log(process)
        if process.origin is not None:
            mine.origin = replace(process.origin, process=copies[id(process.origin.process)])
    return list(copies.values())
