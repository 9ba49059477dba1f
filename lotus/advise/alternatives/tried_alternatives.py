"""Alternatives to a program's operations, tried on its own samples.

The program is started once more, up to its loader: lotus/inside/isolate/alternative_bench.py tries
the files of lotus/inside/alternatives/ there. Here their costs become ratios with intervals.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lotus.advise.alternatives import code_change
from lotus.advise.alternatives.known_advice import known_advice
from lotus.common.errors import LotusError
from lotus.inside.common import alternative_files
from lotus.mapping import isolated_runner
from lotus.mapping.isolated_runner import AlternativeTrials
from lotus.tune.search.trials.trial_rates import Speedup, compared

FOLDER = Path(alternative_files.FOLDER)
WORTH = 0.02  # the least gain that counts
COLLATE = "collate"  # the operation that makes a batch


@dataclass(frozen=True)
class OutputChange:
    """The change that an alternative makes to outputs, over all inputs; None: not comparable."""

    before: str  # kind and data type
    after: str
    equal: bool | None  # bit for bit
    largest: float | None  # difference of a value
    mean: float | None
    range: float | None  # of the values before, smallest to largest
    psnr_db: float | None = None  # against that range; None where equal, too
    before_bytes: float | None = None  # of a sample's output
    after_bytes: float | None = None


@dataclass(frozen=True)
class TriedAlternative:
    """Another way to do what some operations do. Times are CPU seconds of a sample."""

    name: str  # of its file
    title: str
    replaces: tuple[str, ...]
    places: tuple[str, ...]  # FILE:LINE that makes these operations, or has their code
    speedup: Speedup  # of the CPU time, on one thread
    before_s: float
    after_s: float
    samples: int
    output: OutputChange
    change: str
    known: str
    applicable: bool = False  # `lotus run` can put it in
    exact: bool = False  # its outputs are then kept equal bit for bit
    diff: str = ""  # of the program's code; "" if it is not certain what to change
    before_peak_bytes: float | None = None  # memory that a sample takes at most; None: not known
    after_peak_bytes: float | None = None

    @property
    def faster(self) -> bool:
        """True if it was shown to be faster."""
        return self.speedup.shows(WORTH)


@dataclass(frozen=True)
class Alternatives:
    """All that was tried, and what was not."""

    tried: tuple[TriedAlternative, ...]  # the one that saves most first
    untried: tuple[tuple[str, str], ...]  # (title, why)
    operations: Mapping[str, float]  # CPU seconds of a sample in each operation
    notes: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)  # FILE:LINE of operations
    # The function by which a folder data set decodes files; if there is none, "Loader" is all that
    # is in no operation.
    decoder: str | None = None

    @property
    def sample_s(self) -> float:
        """CPU seconds of a sample in all operations, with collate and without sending."""
        # Those inside others ("RandomApply/Blur") are part of these.
        return sum(each for name, each in self.operations.items() if "/" not in name)

    def without_alternative(self) -> tuple[list[str], float]:
        """Return the operations for which nothing was tried, and their part of a sample's CPU time.

        Not those inside others, and not collate.
        """
        known = {name for each in self.tried for name in each.replaces}
        known |= {title for title, _ in self.untried}
        names = [
            name for name in self.operations if name not in {*known, COLLATE} and "/" not in name
        ]
        seconds = math.fsum(self.operations[name] for name in names)
        return names, seconds / self.sample_s if self.sample_s > 0 else 0.0

    def predicted(self, alternative: TriedAlternative) -> float | None:
        """Return how many times the samples the same cores make with it, if they set the pace.

        None if the operations' own times do not contain what it replaces.
        """
        if alternative.after_s <= 0:
            return None
        return self._with_replaced(alternative, alternative.before_s / alternative.after_s)

    def predicted_range(self, alternative: TriedAlternative) -> tuple[float, float] | None:
        """Return the ends of that for the interval of the alternative's own speed."""
        low = self._with_replaced(alternative, alternative.speedup.low)
        high = self._with_replaced(alternative, alternative.speedup.high)
        return None if low is None or high is None else (low, high)

    def _with_replaced(self, alternative: TriedAlternative, times: float) -> float | None:
        """Return the same where what it replaces is so many times as fast."""
        if not {*alternative.replaces} <= self.operations.keys() or times <= 0:
            return None
        whole_s = self.sample_s
        replaced_s = sum(self.operations[name] for name in alternative.replaces)
        after_s = whole_s - replaced_s + replaced_s / times
        return whole_s / after_s if after_s > 0 else None


def chosen(only: Collection[str] = (), skipped: Collection[str] = ()) -> list[str]:
    """Return the names of the alternatives to try: those of `only`, or all, but none skipped.

    Raises LotusError for a name in `only` that none has.
    """
    known = alternative_files.names()
    for name in only:
        if name not in known:
            raise LotusError(
                f"--only {name}: there is no such alternative; there are {', '.join(known)}"
            )
    return [name for name in only or known if name not in skipped]


def attempt(
    command: Sequence[str],
    trials: AlternativeTrials,
    *,
    site: str | None = None,
    storage: bool = True,
    on_event: Callable[[Mapping[str, Any]], object] | None = None,
) -> Alternatives:
    """Start a command up to its loader, and try alternatives.

    `site` is the FILE:LINE that makes the loader. Without `storage`, the loop was shown not to wait
    for it. `on_event` gets an event before each step. Raises LotusError where the command cannot be
    started, or where it iterates no loader.
    """
    with tempfile.TemporaryDirectory(prefix="lotus-advise-") as scratch:
        events, notes = isolated_runner.try_alternatives(
            command,
            Path(scratch) / "run",
            FOLDER,
            trials,
            on_event=on_event,
        )
    return read(events, notes, site, storage)


def read(
    events: Sequence[Mapping[str, Any]],
    notes: Sequence[str] = (),
    site: str | None = None,
    storage: bool = True,
) -> Alternatives:
    """Return what the events of the program say; `site` and `storage` are those of `attempt`."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        by_kind.setdefault(str(event.get("event")), []).append(event)
    operations = {
        event["operation"]: event["cpu_ns"] / 1e9 for event in by_kind.get("operation", ())
    }
    places: dict[str, str] = {}
    code = None
    for event in by_kind.get("code", ()):
        code = code_change.find(event["files"], event["kinds"], site)
        places = code_change.only_calls(event["files"], [*operations])
    if code is not None:
        places |= {name: at for name in operations if (at := code.at(name)) is not None}
    own = {event["operation"]: event["place"] for event in by_kind.get("operation", ())}
    places |= {name: place for name, place in own.items() if place is not None}
    decoder = next(filter(None, (each["decoder"] for each in by_kind.get("operation", ()))), None)
    tried = [_tried(event, places, code) for event in by_kind.get("alternative", ())]
    tried.sort(key=lambda each: each.after_s - each.before_s)
    untried = [(event["title"], event["why"]) for event in by_kind.get("untried", ())]
    untried += [(event["operation"], event["why"]) for event in by_kind.get("skipped", ())]
    notes = [*notes, *(event["error"] for event in by_kind.get("fault", ()))]
    for event in by_kind.get("habits", ()):
        notes += known_advice(event, event["num_workers"], storage=storage)
    return Alternatives(tuple(tried), tuple(untried), operations, tuple(notes), places, decoder)


def _tried(
    event: Mapping[str, Any],
    places: Mapping[str, str],
    code: code_change.CodePlaces | None,
) -> TriedAlternative:
    rounds, samples = event["rounds"], event["samples"]
    before_ns, after_ns = (statistics.mean(each[place] for each in rounds) for place in (0, 1))
    replaced = tuple(event["replaces"])
    edits, peaks = event.get("edits") or [], event.get("peaks") or [None, None]
    return TriedAlternative(
        name=event["name"],
        title=event["title"],
        replaces=replaced,
        places=tuple(places[name] for name in replaced if name in places),
        speedup=compared([(1 / max(after, 1.0), 1 / max(before, 1.0)) for before, after in rounds]),
        before_s=before_ns / samples / 1e9,
        after_s=after_ns / samples / 1e9,
        samples=samples,
        output=_output(event["changes"], samples / len(event["changes"])),
        change=event["change"],
        known=event["known"],
        applicable=bool(event.get("applicable")),
        exact=bool(event.get("exact")),
        diff=code.diff(edits) if code is not None and edits else "",
        before_peak_bytes=_mean(peaks[:1], samples / len(event["changes"])),
        after_peak_bytes=_mean(peaks[1:], samples / len(event["changes"])),
    )


def _output(changes: Sequence[Mapping[str, Any]], samples: float) -> OutputChange:
    """Return the largest of all differences, and means over inputs of equal weight.

    `samples` are those of an input.
    """
    first = changes[0]
    sizes = [each.get("bytes") or [None, None] for each in changes]
    before, after = (_mean([size[place] for size in sizes], samples) for place in (0, 1))
    if any(each["equal"] is None for each in changes):
        kinds = (first["before"], first["after"])
        return OutputChange(*kinds, None, None, None, None, None, before, after)
    whole = max(each["range"] for each in changes)
    square = math.fsum(each.get("square", 0.0) for each in changes) / len(changes)
    return OutputChange(
        before=first["before"],
        after=first["after"],
        equal=all(each["equal"] for each in changes),
        largest=max(each["largest"] for each in changes),
        mean=math.fsum(each["mean"] for each in changes) / len(changes),
        range=whole,
        psnr_db=10 * math.log10(whole**2 / square) if square > 0 and whole > 0 else None,
        before_bytes=before,
        after_bytes=after,
    )


def _mean(values: Sequence[float | None], samples: float) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) / samples if len(known) == len(values) else None
