"""The C and C++ functions under each operation of a program that was sampled from outside.

perf samples a thread a thousand times a second, py-spy its Python stack some twenty to fifty times.
What a thread was at between two stacks is not known. So a stack goes with the one sample of the
same thread that is nearest to it, at most a millisecond away, and all other samples are told of the
whole process only. An operation whose calls are over within a few milliseconds has samples of its
neighbours under it: the samples some milliseconds beside its stacks show that.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.clock_offset import nearest
from lotus.analysis.attached.evidence.evidence import AttachEvidence, FunctionEvidence
from lotus.analysis.common.columns import ratio
from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.common.numbers.statistics import wilson
from lotus.common.text.formatting import library, plain
from native_map.symbols.demangle import short

KNOWN, FEW, SHORT, ALIKE, REGULAR = "known", "few", "short", "alike", "regular"
SHOWN = (*phases.MAKING, phases.STEP, phases.SEND, phases.RECEIVE)
_NEAR_NS = 1_000_000
_BESIDE_NS = (1_500_000, 2_500_000, 3_500_000)
_MOST_LATE_NS, _STEP_NS = 12_000_000, 250_000  # py-spy begins its clock after its start
_PEAK, _VALLEY = 0.9, 0.8  # of the most information
_LEAST = 30  # stacks with a sample
_HELD = 0.5  # calls of some 7 ms
_ALL = 0.9  # of the stacks: then the other operations change little
_SURE = 3.0  # standard deviations
NONE = -1


@dataclass(frozen=True)
class OperationSamples:
    """An operation: `matched` of its stacks have a sample within a millisecond.

    state      KNOWN, FEW (matched stacks), SHORT (calls of a few milliseconds), ALIKE (not told
               apart from what else these processes do), REGULAR (operations follow one another so
               regularly that the clocks of perf and py-spy cannot be brought together)
    held       how alike the samples up to 3.5 ms beside its stacks are: 1 as those at them, 0 as
               those of the rest; NaN: not known
    functions  library, function, samples, share, low, high (95 %); without rows where not KNOWN
    """

    phase: str
    name: str
    matched: int
    state: str
    held: float
    functions: pd.DataFrame


@dataclass(frozen=True)
class FunctionSummary:
    """The functions of all operations, most samples first, and of all `processes`.

    `processes`: process ("workers" or "main"), library, function, samples, share, low, high of all
    samples, whatever the operation. `samples`: of perf; `stacks`: at times that are known;
    `matched`: of these with a sample; `apart_share`: share of the samples that go with no stack;
    `late_ns`: by which the clock of the stacks was moved.
    """

    event: str
    frequency: int
    kernel: bool
    lost: int
    samples: int
    stacks: int
    matched: int
    apart_share: float
    late_ns: float
    operations: list[OperationSamples]
    processes: pd.DataFrame
    notes: tuple[str, ...]


def summarise_functions(evidence: AttachEvidence) -> FunctionSummary | None:
    """Join the samples of perf with the stacks; None if perf has no samples."""
    if evidence.functions is None:
        return None
    seen = _named(evidence.functions)
    joined = _Join(seen)
    late, regular = joined.offset()
    at = joined.at(late)
    beside = [[joined.at(late + sign * side) for sign in (-1, 1)] for side in _BESIDE_NS]
    labels = evidence.labels.reindex(seen.moments["label"]).reset_index(drop=True)
    phase, name = (labels[column].to_numpy(dtype=object) for column in ("phase", "name"))
    workers = set(evidence.processes.loc[evidence.processes["worker"] >= 0, "pid"])
    working = seen.moments["pid"].isin(workers).to_numpy()
    operations = []
    pairs = pd.DataFrame({"phase": phase, "name": name})[at != NONE]
    for its_phase, its_name in pairs.drop_duplicates().itertuples(index=False, name=None):
        if its_phase not in SHOWN:
            continue
        mine = (phase == its_phase) & (name == its_name)
        others = np.isin(working, np.unique(working[mine])) & ~mine
        each = _operation(seen, its_phase, its_name, mine, others, at, beside)
        if regular and np.isfinite(each.held):
            each = replace(each, state=REGULAR, functions=each.functions.head(0))
        operations.append(each)
    operations.sort(key=lambda operation: -operation.matched)
    used = np.unique(at[at != NONE])
    return FunctionSummary(
        event=seen.event,
        frequency=seen.frequency,
        kernel=seen.kernel,
        lost=seen.lost,
        samples=len(seen.samples),
        stacks=len(seen.moments),
        matched=int((at != NONE).sum()),
        apart_share=1 - ratio(float(len(used)), float(len(seen.samples))),
        late_ns=late,
        operations=operations,
        processes=_processes(seen, workers),
        notes=seen.notes,
    )


def _named(seen: FunctionEvidence) -> FunctionEvidence:
    """Return the evidence with names as they are shown; functions of one name become one."""
    pairs = [
        (plain(library(str(file))), plain(short(str(function))))
        for file, function in zip(seen.names["library"], seen.names["function"], strict=True)
    ]
    numbers: dict[tuple[str, str], int] = {}
    codes = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], np.int64)
    function = codes[seen.samples["function"].to_numpy(np.int64)] if len(codes) else codes
    names = pd.DataFrame(list(numbers), columns=["library", "function"])
    return replace(seen, names=names, samples=seen.samples.assign(function=function))


class _Join:
    """The sample that is nearest to each moment, of the same thread."""

    def __init__(self, seen: FunctionEvidence) -> None:
        self._count = len(seen.moments)
        self._function = seen.samples["function"].to_numpy(np.int64)
        self._label = seen.moments["label"].to_numpy(np.int64)
        times = seen.samples["time_ns"].to_numpy(np.float64)
        moments = seen.moments["time_ns"].to_numpy(np.float64)
        threads = dict(tuple(seen.samples.groupby(["pid", "tid"]).indices.items()))
        self._each: list[tuple[Ints, Floats, Ints, Floats]] = []
        for thread, rows in seen.moments.groupby(["pid", "tid"]).indices.items():
            own = threads.get(thread)
            if own is not None:
                here, there = np.asarray(rows, np.int64), np.asarray(own, np.int64)
                self._each.append((here, moments[here], there, times[there]))

    def at(self, offset: float) -> Ints:
        """Return rows of the samples with moments moved by `offset`; NONE if none is near."""
        result = np.full(self._count, NONE, np.int64)
        for rows, moments, own, times in self._each:
            place = nearest(times, moments + offset)
            near = np.abs(times[place] - moments - offset) <= _NEAR_NS
            result[rows[near]] = own[place[near]]
        return result

    def offset(self) -> tuple[float, bool]:
        """Return the offset at which functions say most about labels, and True if it is unclear.

        It is unclear if another one, with less information in between, has about as much: that
        happens if calls follow one another regularly.
        """
        offsets = np.arange(0.0, _MOST_LATE_NS + 1, _STEP_NS)
        scores = np.array([self._information(self.at(float(offset))) for offset in offsets])
        best = int(np.argmax(scores))
        low = np.flatnonzero(scores < _VALLEY * scores[best])
        before = low[low < best].max(initial=-1)
        after = low[low > best].min(initial=len(scores))
        apart = np.append(scores[: before + 1], scores[after:])
        at_end = best == len(scores) - 1 and scores[0] < _VALLEY * scores[best]
        return float(offsets[best]), bool((apart >= _PEAK * scores[best]).any() or at_end)

    def _information(self, at: Ints) -> float:
        """Return the mutual information, in nats, of labels and the functions at them."""
        known = at != NONE
        if not known.any():
            return 0.0
        label = np.unique(self._label[known], return_inverse=True)[1]
        function = np.unique(self._function[at[known]], return_inverse=True)[1]
        both = pd.Series(label * (int(function.max()) + 1) + function).value_counts()
        whole = float(known.sum())
        entropies = [_entropy(np.bincount(codes) / whole) for codes in (label, function)]
        return sum(entropies) - _entropy(both.to_numpy(np.float64) / whole)


def _entropy(parts: Floats) -> float:
    filled = parts[parts > 0]
    return float(-(filled * np.log(filled)).sum())


def _operation(
    seen: FunctionEvidence,
    phase: str,
    name: str,
    mine: Bools,
    others: Bools,
    at: Ints,
    beside: list[list[Ints]],
) -> OperationSamples:
    size = len(seen.names)
    function = seen.samples["function"].to_numpy(np.int64)

    def counted(rows: Ints, which: Bools) -> Floats:
        return np.bincount(function[rows[which & (rows != NONE)]], minlength=size).astype(float)

    own, rest = counted(at, mine), counted(at, others)
    rings = [counted(rows[0], mine) + counted(rows[1], mine) for rows in beside]
    matched = int(own.sum())
    held = np.nan
    if matched < _LEAST:
        state = FEW
    elif own.sum() >= _ALL * (own.sum() + rest.sum()):
        state = KNOWN
    elif not _differ(own, rest):
        state = ALIKE
    else:
        held = min(_held(own, ring, rest) for ring in rings)
        state = KNOWN if held >= _HELD else SHORT
    counts = own if state == KNOWN else np.zeros(size)
    return OperationSamples(phase, name, matched, state, held, _table(seen, counts))


def _differ(own: Floats, rest: Floats) -> bool:
    """Return whether two sets of samples have different functions, by a test of homogeneity."""
    total = own + rest
    expected = total * own.sum() / total.sum()
    large = np.minimum(expected, total - expected) >= 5
    groups = [np.append(part[large], part[~large].sum()) for part in (own, rest)]
    whole = groups[0] + groups[1]
    groups, whole = [part[whole > 0] for part in groups], whole[whole > 0]
    freedom = len(whole) - 1
    if freedom < 1:
        return False
    square = 0.0
    for part in groups:
        wanted = whole * part.sum() / whole.sum()
        square += float(((part - wanted) ** 2 / wanted).sum())
    # Wilson and Hilferty's normal deviate of a chi-square.
    spread = 2 / (9 * freedom)
    return bool(((square / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread) > _SURE)


def _held(own: Floats, ring: Floats, rest: Floats) -> float:
    """Return the part of the difference between own samples and the rest that `ring` shows."""
    if not ring.sum() or not rest.sum():
        return float("nan")
    n, p, q, r = own.sum(), own / own.sum(), ring / ring.sum(), rest / rest.sum()
    # Without the part of p . p that is a sample's agreement with itself.
    square = float((own * (own - 1)).sum() / (n * (n - 1)))
    m = rest.sum()
    square_rest = float((rest * (rest - 1)).sum() / (m * (m - 1))) if m > 1 else 0.0
    whole = square - 2 * float(p @ r) + square_rest
    part = float(q @ p) - float(q @ r) - float(p @ r) + square_rest
    return part / whole if whole > 0 else float("nan")


def _table(seen: FunctionEvidence, counts: Floats) -> pd.DataFrame:
    rows = np.argsort(-counts, kind="stable")
    rows = rows[counts[rows] > 0]
    whole = float(counts.sum())
    ends = [wilson(count / whole, whole) for count in counts[rows]]
    return pd.DataFrame(
        {
            "library": seen.names["library"].to_numpy()[rows],
            "function": seen.names["function"].to_numpy()[rows],
            "samples": counts[rows].astype(np.int64),
            "share": counts[rows] / whole if whole else counts[rows],
            "low": [low for low, _ in ends],
            "high": [high for _, high in ends],
        }
    )


def _processes(seen: FunctionEvidence, workers: set[int]) -> pd.DataFrame:
    """Return the functions of all workers and of all other processes."""
    working = seen.samples["pid"].isin(workers).to_numpy()
    function = seen.samples["function"].to_numpy(np.int64)
    tables = []
    for title, which in (("workers", working), ("main", ~working)):
        counts = np.bincount(function[which], minlength=len(seen.names)).astype(float)
        tables.append(_table(seen, counts).assign(process=title))
    return pd.concat(tables, ignore_index=True)
