"""The predicted cost of an operation, from the measurements of earlier plans.

Pure. An operation is identified by its code and parameters (its key), and its cost depends on its
input. The events come from lotus/inside/isolate/cut_bench.py, the records from cost_library.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SAME_SIZE = 1.1  # sizes that differ by at most this factor count as one
# If other programs use the cores, operations take more CPU time. Records of plans whose threads
# waited by so much more than in the quietest one do not count.
_AS_QUIET = 0.1
# Possible change of costs from one plan to another, as other programs come and go.
_DRIFT = 1.25
_FARTHEST = 2.0  # times beyond the sizes that were measured
_NOT_KNOWN = "not measured before"


@dataclass(frozen=True)
class MeasuredCost:
    """The costs of an operation that one plan has measured for inputs of one kind and size.

    bytes  of the inputs' data, the mean
    mean_ns, median_ns  CPU time of a sample
    low_ns, high_ns  its quartiles
    """

    kind: str
    bytes: float
    samples: int
    mean_ns: float
    median_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class CostRecord:
    """A measured cost, and where.

    versions  those of Python and of libraries
    measured_at  seconds since 1970
    waited_share  the part of its time that the thread waited for a core; None: it is not known
    """

    cost: MeasuredCost
    cpu: str
    versions: Mapping[str, str]
    measured_at: float
    waited_share: float | None = None


@dataclass(frozen=True)
class CostRange:
    """A cost in ns, with the range that measurements span, and a quarter more."""

    ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class OperationCost:
    """An operation of a pipeline: what it was predicted to cost and then cost, a sample.

    key  hash of its code and parameters; None: it has none
    predicted  None: `why` says why not
    plans  earlier plans that the prediction is from
    measured_ns  None: it was not measured
    """

    name: str
    qualified_name: str
    description: str
    key: str | None
    predicted: CostRange | None
    why: str
    plans: int
    measured_ns: float | None


@dataclass(frozen=True)
class PipelineCost:
    """The operations of a pipeline; the sums are of those with a prediction."""

    operations: tuple[OperationCost, ...]
    waited_share: float | None = None  # as in a record, while they were measured

    @property
    def with_prediction(self) -> tuple[OperationCost, ...]:
        """The operations with a prediction."""
        return tuple(each for each in self.operations if each.predicted is not None)

    @property
    def predicted(self) -> CostRange | None:
        """The predicted cost of these together; None: there is none."""
        ranges = [each.predicted for each in self.with_prediction if each.predicted is not None]
        if not ranges:
            return None
        return CostRange(
            sum(each.ns for each in ranges),
            sum(each.low_ns for each in ranges),
            sum(each.high_ns for each in ranges),
        )

    @property
    def measured_ns(self) -> float | None:
        """Their measured cost together; None: one of them was not measured."""
        costs = [each.measured_ns for each in self.with_prediction]
        return None if not costs or None in costs else sum(each or 0.0 for each in costs)

    @property
    def error(self) -> float | None:
        """The relative error of the prediction: 0.1 is 10 % too much; None: it is not known."""
        predicted, measured = self.predicted, self.measured_ns
        return None if predicted is None or not measured else predicted.ns / measured - 1


def measured_costs(event: Mapping[str, Any]) -> list[MeasuredCost]:
    """Return what was measured of an operation, for each kind of its inputs and size."""
    rows = sorted(zip(event["kinds"], event["bytes"], event["cpu_ns"], strict=False))
    groups: list[list[tuple[str, int, int]]] = []
    for row in rows:
        group = groups[-1] if groups else None
        if group is None or group[0][0] != row[0] or row[1] > group[0][1] * SAME_SIZE:
            groups.append([row])
        else:
            group.append(row)
    return [_measured(group) for group in groups]


def _measured(group: Sequence[tuple[str, int, int]]) -> MeasuredCost:
    times = [float(ns) for _, _, ns in group]
    low = high = times[0]
    if len(times) > 1:
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    size = statistics.mean(size for _, size, _ in group)
    mean, median = statistics.mean(times), statistics.median(times)
    return MeasuredCost(group[0][0], float(size), len(group), mean, median, low, high)


def pipeline_cost(
    events: Sequence[Mapping[str, Any]],
    records: Mapping[str, Sequence[CostRecord]],
    cpu: str,
) -> PipelineCost:
    """Return what a pipeline is predicted to cost on this CPU by the records of its keys."""
    operations = []
    waited_share: float | None = None
    for event in events:
        if event.get("event") != "operation":
            continue
        waited_share = event["waited_share"]
        key = event["key"]
        here = [
            record
            for record in records.get(key or "", ())
            if record.cpu == cpu and _agree(record.versions, event["versions"])
        ]
        predicted, why = _predicted(list(zip(event["kinds"], event["bytes"], strict=True)), here)
        if key is None:
            why = "its code or state has no hash"
        elif not here and records.get(key):
            why = "measured with another CPU or other versions only"
        times = event["cpu_ns"]
        operations.append(
            OperationCost(
                event["name"],
                event["qualified_name"],
                event["description"],
                key,
                predicted,
                why,
                len({record.measured_at for record in here}) if predicted is not None else 0,
                statistics.mean(times) if times else None,
            )
        )
    return PipelineCost(tuple(operations), waited_share)


def _quiet(records: Sequence[CostRecord]) -> list[CostRecord]:
    """Return the records of plans in which the thread waited about as little as in any."""
    waited = [record.waited_share or 0.0 for record in records]
    most = min(waited, default=0.0) + _AS_QUIET
    return [record for record, share in zip(records, waited, strict=True) if share <= most]


def _agree(versions: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return all(versions[name] == others[name] for name in versions.keys() & others.keys())


def _predicted(
    inputs: Sequence[tuple[str, int]], records: Sequence[CostRecord]
) -> tuple[CostRange | None, str]:
    """Return the mean cost of these inputs, or why it is not known."""
    ranges = []
    for kind, size in inputs:
        alike = [record for record in records if record.cost.kind == kind]
        same = [record for record in alike if _ratio(record.cost.bytes, size) <= SAME_SIZE]
        costs = [record.cost for record in _quiet(same or alike)]
        predicted, why = _of_size(size, costs)
        if predicted is None:
            return None, f"another input ({kind}) than measured" if records and not costs else why
        ranges.append(predicted)
    if not ranges:
        return None, "no sample was made"
    return CostRange(
        statistics.mean(each.ns for each in ranges),
        statistics.mean(each.low_ns for each in ranges) / _DRIFT,
        statistics.mean(each.high_ns for each in ranges) * _DRIFT,
    ), ""


def _of_size(size: float, costs: Sequence[MeasuredCost]) -> tuple[CostRange | None, str]:
    """Return the cost of an input: that of the same size, or on a line through other sizes."""
    if not costs:
        return None, _NOT_KNOWN
    same = [cost for cost in costs if _ratio(cost.bytes, size) <= SAME_SIZE]
    if same:
        return CostRange(
            statistics.median(cost.mean_ns for cost in same),
            min(min(cost.low_ns, cost.mean_ns) for cost in same),
            max(max(cost.high_ns, cost.mean_ns) for cost in same),
        ), ""
    sizes = [cost.bytes for cost in costs]
    least, most = min(sizes), max(sizes)
    if _ratio(least, most) <= SAME_SIZE:
        return None, "other size, not known"
    if not least / _FARTHEST <= size <= most * _FARTHEST:
        return None, "much smaller or larger than measured"
    slope, start = statistics.linear_regression(sizes, [cost.mean_ns for cost in costs])
    # The distance of costs from the line, relative to it: the largest on each side counts.
    low, high = 1.0, 1.0
    for cost in costs:
        line = start + slope * cost.bytes
        if line <= 0:
            return None, "its costs do not follow the size"
        low = min(low, cost.low_ns / line, cost.mean_ns / line)
        high = max(high, cost.high_ns / line, cost.mean_ns / line)
    ns = start + slope * size
    if ns <= 0:
        return None, "its costs do not follow the size"
    return CostRange(ns, ns * low, ns * high), ""


def _ratio(first: float, second: float) -> float:
    least, most = sorted((first, second))
    return most / least if least > 0 else (1.0 if most == 0 else float("inf"))
