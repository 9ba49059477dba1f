"""Labels Python stacks with the work of their thread: wait, train, make a batch.

Pure: stacks in, labels out. The names of torch's functions decide nearly always; the lines of the
training loop distinguish a step from what is outside the loop.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lotus.analysis.attached.evidence import phases
from lotus.attach.stacks.sample_operations import ACCESS, outermost_operation
from lotus.attach.stacks.source_lines import SourceLoop, Sources
from lotus.format import stack_frames
from lotus.format.stack_frames import bare_name
from native_map.recording.python_frame import Frame

_LOADER = re.compile(r"/torch/utils/data/dataloader\.py$|/torchdata/stateful_dataloader/.+\.py$")
_WORKER = re.compile(r"/torch/utils/data/_utils/worker\.py$|/torchdata/stateful_dataloader/.+\.py$")
_FETCHER = re.compile(r"/torch/utils/data/_utils/fetch\.py$|/torchdata/.+/fetch\.py$")
_PIN = re.compile(r"/torch/utils/data/_utils/pin_memory\.py$")
_QUEUES = re.compile(r"/(multiprocessing|torch/multiprocessing)/\w+\.py$")
_DRAWING = frozenset(("_next_index",))
_ITERATES_SAMPLER = "iter(self._index_sampler)"
# Of torchdata's StatefulDataLoader, in a worker and in `next`.
_SNAPSHOT = frozenset(("_make_state_dict", "generate_delta"))
_STATE = frozenset(("_get_main_state", "_update_worker_snapshot", "_take_snapshot"))
_RECEIVING = frozenset(("rebuild_storage_fd", "recv", "recv_bytes", "_recv_bytes", "detach"))
_MOST_CHAIN = 16
FEEDER = "QueueFeederThread"


@dataclass(frozen=True)
class Label:
    """The work of a thread. `loop`: its number, -1: none; `chain`: frames of the program's code."""

    phase: str
    name: str = ""  # of the operation
    loop: int = -1
    chain: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Site:
    """A loop over a loader: its place and its lines (0, 0: the whole function)."""

    function: str
    file: str
    head: int
    first: int
    last: int

    def holds(self, frame: Frame) -> bool:
        """Return whether a frame is in the body of the loop."""
        if (frame.function, frame.file) != (self.function, self.file):
            return False
        return not self.last or self.first <= frame.line <= self.last


def find_loops(stacks: Iterable[Sequence[Frame]], sources: Sources) -> list[Site]:
    """Return the loops over loaders that occur in the stacks of a program.

    A forked worker has the frames in which its parent started it, which show a loop even if its
    `next` is too short to be sampled.
    """
    stacks = list(stacks)
    elsewhere: dict[tuple[str, str], set[int]] = {}
    for frames in stacks:
        if _loader_frame(frames) is None:
            for frame in frames:
                elsewhere.setdefault((frame.function, frame.file), set()).add(frame.line)
    sites: dict[Site, None] = {}
    wrappers: dict[Site, None] = {}
    for frames in stacks:
        at = _loader_frame(frames)
        called = set() if at is None else {bare_name(frame.function) for frame in frames[at:]}
        ends = not {"__next__", "__iter__"} & called
        site = None if ends else _site(frames[:at], elsewhere, sources, "__next__" in called)
        if site is not None:
            loop = _loop_at(Frame(site.function, site.file, site.head), sources)
            (wrappers if loop and loop.hands_on else sites)[site] = None
    return list(sites or wrappers)  # a torn stack may end within a wrapper


def _site(
    above: Sequence[Frame],
    elsewhere: Mapping[tuple[str, str], set[int]],
    sources: Sources,
    takes: bool,
) -> Site | None:
    """Return the loop that calls the loader: the innermost that is also sampled outside `next`.

    A loop that only passes batches on is chosen only if there is no other, as the step is in the
    loop that uses them. A function without source, as a cell of a notebook, counts as a loop,
    unless it calls the loader for a loop with source. takes: it calls `next`, not `iter`.
    """
    looped = wrapper = unread = None
    begins = not takes  # the frame itself calls `iter`, or one that passes on its batches does
    unread_elsewhere = False  # it is also seen outside of `next`
    for frame in reversed(above):
        library = stack_frames.LIBRARY.search(frame.file)
        if unread and library:
            continue  # its loops run the cells of a notebook
        lines = elsewhere.get((frame.function, frame.file), set())
        loop = _loop_at(frame, sources, takes, begins)
        begins = begins and loop is not None and loop.hands_on
        if loop is None:
            if not looped and not library and not sources.text(frame.file, frame.line):
                site = Site(frame.function, frame.file, frame.line, 0, 0)
                if unread is None or (lines and not unread_elsewhere):
                    unread, unread_elsewhere = site, bool(lines)
            continue
        site = Site(frame.function, frame.file, loop.head, loop.first, loop.last)
        if loop.hands_on:
            wrapper = wrapper or site
            continue
        looped = looped or site
        if any(site.first <= line <= site.last for line in lines):
            return site
    if looped or unread or wrapper:
        return looped or unread or wrapper
    if any(sources.text(frame.file, frame.line) for frame in above):
        return None  # a batch that is taken outside of any loop
    known = [frame for frame in above if (frame.function, frame.file) in elsewhere]
    chosen = known[-1] if known else above[-1] if above else None
    return None if chosen is None else Site(chosen.function, chosen.file, chosen.line, 0, 0)


def _loop_at(
    frame: Frame, sources: Sources, takes: bool = True, begins: bool = False
) -> SourceLoop | None:
    """Return the innermost loop that a frame may be in; None if there is none.

    A comprehension is a loop if it takes batches, or if the frame `begins` it. If its body makes
    iterators, these are for a loop elsewhere.
    """
    comprehension = None
    if takes or begins:
        places = frame.file, frame.line, frame.function
        comprehension = sources.comprehension(*places, begins=begins)
    return comprehension or sources.loop(frame.file, frame.line)


def made_elsewhere(stacks: Iterable[Sequence[Frame]], sites: Sequence[Site]) -> dict[int, int]:
    """Map loops that only make iterators to the loop of the same thread that takes the batches.

    These differ if different functions call `iter` and `next`, as in Lightning. Workers have the
    frames of the first, waits those of the second.
    """
    taking: set[int] = set()
    within: dict[int, dict[int, int]] = {}
    for frames in stacks:
        at = _loader_frame(frames)
        if at is None or "__next__" not in _names(frames[at:]):
            continue
        loop = _loop_of(frames[: at + 1], sites)
        taking.add(loop)
        for number, site in enumerate(sites):
            if loop >= 0 and number != loop and any(site.holds(frame) for frame in frames[:at]):
                counts = within.setdefault(number, {})
                counts[loop] = counts.get(loop, 0) + 1
    return {
        maker: max(counts, key=lambda loop: counts[loop])
        for maker, counts in within.items()
        if maker not in taking
    }


def of_taker(label: Label, makers: Mapping[int, int]) -> Label:
    """Return the label with the loop that takes the batches, if its own only makes iterators."""
    if label.loop not in makers:
        return label
    if label.phase == phases.STEP:
        return replace(label, phase=phases.OUTSIDE, loop=-1)
    return replace(label, loop=makers[label.loop])


def label_main(frames: Sequence[Frame], sites: Sequence[Site], sources: Sources) -> Label:
    """Return the label of a thread of a main process that runs a loop."""
    at = _loader_frame(frames)
    if at is None:
        return _outside_of_next(frames, sites, sources)
    loop = _loop_of(frames[: at + 1], sites)
    below = frames[at:]
    names = _names(below)
    if "_shutdown_workers" in names or "__del__" in names:
        return Label(phases.SHUTDOWN, loop=loop)
    own = _of_sampler(below, sources)
    if "__next__" not in names:
        phase = phases.STARTUP if own is None else phases.DRAW
        return Label(phase, loop=loop, chain=tuple(own or ()))
    fetch = _fetch_frame(below)
    if fetch is not None:
        return _making(below, fetch, loop, sources)
    if own is not None:
        return Label(phases.SAMPLER, loop=loop, chain=tuple(own))
    if _STATE.intersection(names):
        return Label(phases.STATE, loop=loop)
    if "_reset" in names:
        return Label(phases.STARTUP, loop=loop)
    if any(bare_name(frame.function) in ("_try_get_data", "_get_data") for frame in below):
        phase = _queue_phase(below)
        return Label(phase, _sent(below) if phase == phases.RECEIVE else "", loop)
    return Label(phases.NEXT, loop=loop)


def _names(frames: Sequence[Frame]) -> list[str]:
    """Return the names of the frames that are functions of the loader."""
    return [bare_name(frame.function) for frame in frames if _LOADER.search(frame.file)]


def _of_sampler(below: Sequence[Frame], sources: Sources) -> Sequence[Frame] | None:
    """Return the frames within the sampler; None if none is called."""
    for place in reversed(range(len(below))):
        frame = below[place]
        own = below[place + 1 : place + 1 + _MOST_CHAIN]
        if not _LOADER.search(frame.file):
            continue
        if bare_name(frame.function) in _DRAWING:
            return own
        if own and _ITERATES_SAMPLER in sources.text(frame.file, frame.line):
            return own
    return None


def _queue_phase(below: Sequence[Frame]) -> str:
    """Return the phase: waiting for the queue, or receiving a batch from it."""
    names = {bare_name(frame.function) for frame in below}
    if names & {"poll", "_poll", "wait", "select"} and not names & {"rebuild_storage_fd", "detach"}:
        return phases.WAIT
    if names & _RECEIVING or any("rebuild" in name for name in names):
        return phases.RECEIVE
    inner = below[-1]
    if bare_name(inner.function) == "get" and stack_frames.waits(inner.function, inner.file):
        return phases.RECEIVE if _QUEUES.search(inner.file) else phases.WAIT
    return phases.WAIT


def _sent(frames: Sequence[Frame]) -> str:
    """Return TENSORS if tensors in shared memory are sent or received, else ""."""
    names = " ".join(frame.function for frame in frames)
    shared = re.search(r"rebuild_(storage|tensor)|reduce_(storage|tensor)|resource_sharer", names)
    return phases.TENSORS if shared else ""


def _outside_of_next(frames: Sequence[Frame], sites: Sequence[Site], sources: Sources) -> Label:
    for place in reversed(range(len(frames))):
        frame = frames[place]
        if bare_name(frame.function) in ("_shutdown_workers",) and _LOADER.search(frame.file):
            return Label(phases.SHUTDOWN)
        for number, site in enumerate(sites):
            if site.holds(frame) or _hands_on(site, frames[place:], sources):
                # The caller of the loop, such as a framework, is no part of the step.
                return Label(phases.STEP, loop=number, chain=_of_step(frames[place:]))
    if any(frame.file.startswith("<frozen importlib") for frame in frames):
        return Label(phases.IMPORTS)
    return Label(phases.OUTSIDE, chain=_of_program(frames))


def _hands_on(site: Site, frames: Sequence[Frame], sources: Sources) -> bool:
    """Return whether a loop takes its batches from a generator that processes each of them.

    The time of the generator between two calls of the loader's `next` is part of the step.
    """
    at = frames[0]
    if (at.function, at.file) != (site.function, site.file):
        return False
    if not site.head <= at.line < site.first:
        return False
    within = ((frame, sources.loop(frame.file, frame.line)) for frame in frames[1:])
    return any(loop and loop.hands_on and frame.line >= loop.first for frame, loop in within)


def _of_step(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the program's own frames, or the innermost frame if a framework calls none."""
    return _of_program(frames) or tuple(frames[-2:])


def _of_program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    return tuple(frame for frame in frames if not stack_frames.LIBRARY.search(frame.file))[-2:]


def label_worker(frames: Sequence[Frame], sites: Sequence[Site], sources: Sources) -> Label:
    """Return the label of a worker's main thread; forked ones also have their parent's frames."""
    loops = [k for k, frame in enumerate(frames) if is_worker_loop(frame)]
    at = _loader_frame(frames)
    loop = -1 if at is None else _loop_of(frames[: at + 1], sites)
    if not loops:
        return Label(phases.STARTUP, loop=loop)
    below = frames[loops[-1] :]
    fetch = _fetch_frame(below)
    if fetch is not None:
        return _making(below, fetch, loop, sources)
    names = {bare_name(frame.function) for frame in below}
    if names & _SNAPSHOT:
        return Label(phases.SNAPSHOT, loop=loop, chain=tuple(below[1:_MOST_CHAIN]))
    if "put" in names:
        return Label(phases.SEND, loop=loop)
    text = sources.text(below[0].file, below[0].line)
    if len(below) == 1 or "get" in names or "poll" in names:
        busy = text and ".get(" not in text and len(below) == 1
        return Label(phases.SEND if busy and ".put(" in text else phases.IDLE, loop=loop)
    return Label(phases.STARTUP, loop=loop)


def label_helper(name: str, frames: Sequence[Frame]) -> Label:
    """Return the label of another Python thread: the feeder of a queue, the pinning thread, any."""
    names = {bare_name(frame.function) for frame in frames}
    if name.startswith(FEEDER) or "_feed" in names:
        waits = bool(frames) and bare_name(frames[-1].function) == "wait"
        return Label(phases.FEEDER_IDLE) if waits else Label(phases.SEND, _sent(frames))
    if any(_PIN.search(frame.file) for frame in frames):
        waits = bool(names & {"wait", "poll", "_poll", "select"})
        return Label(phases.HELPER_IDLE if waits else phases.PIN)
    waits = bool(frames) and stack_frames.waits(frames[-1].function, frames[-1].file)
    return Label(phases.HELPER_IDLE if waits else phases.HELPER, chain=_of_program(frames))


def _loader_frame(frames: Sequence[Frame]) -> int | None:
    """Return the place of the frame that calls the innermost loader; None if there is none."""
    within = None
    for place, frame in enumerate(frames):
        if not _LOADER.search(frame.file):
            continue
        name = bare_name(frame.function)
        if name in ("__next__", "__iter__", "_get_iterator", "_shutdown_workers", "__del__") and (
            place == 0 or not _LOADER.search(frames[place - 1].file)
        ):
            within = place if within is None else within
    return within


def _loop_of(frames: Sequence[Frame], sites: Sequence[Site]) -> int:
    """Return the number of the innermost loop that calls the loader; -1 if there is none.

    A function that makes the iterator above its only loop makes it for that loop, not for the one
    that it was called from.
    """
    iterates = bare_name(frames[-1].function) in ("__iter__", "_get_iterator")
    for frame in reversed(frames[:-1]):
        own = [
            (number, site)
            for number, site in enumerate(sites)
            if (frame.function, frame.file) == (site.function, site.file)
        ]
        for number, site in own:
            if not site.last or site.head <= frame.line <= site.last:
                return number
        if iterates and len(own) == 1 and frame.line < own[0][1].head:
            return own[0][0]
    return -1


def _fetch_frame(frames: Sequence[Frame]) -> int | None:
    return next((place for place, frame in enumerate(frames) if is_fetch(frame)), None)


def is_worker_loop(frame: Frame) -> bool:
    """Return whether a frame is torch's function that a worker runs."""
    return bare_name(frame.function) == "_worker_loop" and bool(_WORKER.search(frame.file))


def is_fetch(frame: Frame) -> bool:
    """Return whether a frame is torch's function that makes a batch."""
    return bare_name(frame.function) == "fetch" and bool(_FETCHER.search(frame.file))


def _making(frames: Sequence[Frame], fetch: int, loop: int, sources: Sources) -> Label:
    """Return the label of a part of a fetch: an operation, the data set's own code, collate."""
    at = fetch
    while at + 1 < len(frames) and _FETCHER.search(frames[at + 1].file):
        at += 1
    inner, text = frames[at + 1 :], sources.text(frames[at].file, frames[at].line)
    collates = "collate" in text
    if not text and inner:
        collates = (
            "collate" in inner[0].function.lower() or bare_name(inner[0].function) not in ACCESS
        )
    if collates:
        return Label(phases.COLLATE, loop=loop, chain=tuple(inner[:_MOST_CHAIN]))
    if not inner:
        return Label(phases.DATASET, loop=loop)
    outermost = outermost_operation(frames[at], inner, sources)
    if outermost is None:
        return Label(phases.DATASET, loop=loop, chain=tuple(inner[:_MOST_CHAIN]))
    place, name = outermost
    return Label(phases.OPERATION, name, loop, tuple(inner[place : place + _MOST_CHAIN]))
