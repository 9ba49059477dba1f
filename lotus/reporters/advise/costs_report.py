"""The predicted and measured costs of operations: on a terminal and as a document."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lotus.common.text.formatting import MISSING, duration, plain, plural, share
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from lotus.advise.costs.predicted_costs import CostRange, PipelineCost

BUSY = 0.1  # part of the time in which a thread waits for a core


def document(costs: PipelineCost) -> dict[str, Any]:
    """Return the costs as a part of a JSON document."""
    return {
        "operations": [
            {
                "name": each.name,
                "qualified_name": each.qualified_name,
                "description": each.description,
                "key": each.key,
                "predicted": None if each.predicted is None else asdict(each.predicted),
                "why": each.why or None,
                "plans": each.plans,
                "measured_ns": each.measured_ns,
            }
            for each in costs.operations
        ],
        "predicted": None if costs.predicted is None else asdict(costs.predicted),
        "measured_ns": costs.measured_ns,
        "waited_share": costs.waited_share,
    }


def write(console: Console, costs: PipelineCost) -> None:
    """Print a table of the operations, and the sum with its error."""
    measured = any(each.measured_ns is not None for each in costs.operations)
    if measured and not costs.with_prediction:
        return  # the first plan of these operations
    rows = []
    for each in costs.operations:
        cells = [plain(each.name), _range(each.predicted) if each.predicted else each.why]
        if measured:
            cells.append(MISSING if each.measured_ns is None else duration(each.measured_ns))
        rows.append(cells)
    columns = [("operation", LEFT), ("predicted", LEFT)]
    columns += [("measured", RIGHT)] if measured else []
    print_table(console, "CPU time of a sample, by what earlier plans have measured", columns, rows)
    predicted = costs.predicted
    if predicted is None:
        return
    text = (
        f"{len(costs.with_prediction)} of {plural(len(costs.operations), 'operation')}, predicted "
        f"{_range(predicted)} a sample"
    )
    if costs.measured_ns is not None and costs.error is not None:
        more = "more" if costs.error >= 0 else "less"
        text += (
            f", measured {duration(costs.measured_ns)}: {abs(costs.error):.0%} {more} than measured"
        )
    plans = max(each.plans for each in costs.with_prediction)
    text += f"; by at most {plural(plans, 'plan')} an operation"
    console.print()
    print_paragraph(console, "known", text)
    if costs.waited_share is not None and costs.waited_share >= BUSY:
        text = (
            f"meanwhile it waited for a core in {share(costs.waited_share)} of the time: where "
            "other programs use the cores, operations take more CPU time"
        )
        print_paragraph(console, "busy", text)


def _range(values: CostRange) -> str:
    mean, low, high = (duration(value) for value in (values.ns, values.low_ns, values.high_ns))
    return f"{mean} ({low} to {high})"
