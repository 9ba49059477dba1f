"""`lotus map` as a document (`--json`) and as CSV."""

from typing import Any

import pandas as pd

from lotus.analysis.common.columns import records
from lotus.analysis.counters.function_profile import MapSummary
from lotus.analysis.counters.topdown import nodes
from lotus.export.tables import spreadsheet_cells
from native_map.events.metrics import METRICS

SCHEMA = 1


def document(summary: MapSummary) -> dict[str, Any]:
    """Return the document of `lotus map --json`.

    Units: `_ns` nanoseconds, shares are fractions of 1, counts are of events; "metrics" has units
    and formulas. What was not measured is null. "functions" has every event.
    """
    mapped = summary.mapped
    metrics = {
        name: {
            "text": metric.text,
            "unit": metric.unit,
            "formula": metric.formula,
            "source": metric.source,
        }
        for name, metric in METRICS.items()
        if name in summary.operations
    }
    return {
        "schema": SCHEMA,
        "run": {"path": summary.path, "command": summary.manifest.get("command"),
                "host": summary.manifest.get("host"), "cpu": summary.cpu},
        "counted": summary.counted,
        "estimated": summary.sampled,
        "operations": records(summary.operations),
        "bound_by": records(nodes(summary.operations).rows),
        "turns": [{"events": events, "share": part} for events, part in summary.turns],
        "metrics": metrics,
        "helper_share": None if pd.isna(summary.helper_share) else summary.helper_share,
        "sampled": [] if mapped is None else mapped.events,
        "functions": [] if mapped is None else records(mapped.functions),
        "outside": records(summary.outside),
        "python_functions": records(summary.python),
        "joined": [] if mapped is None else records(mapped.operations),
        "calibration": [] if mapped is None else records(mapped.calibration),
        "books": [] if mapped is None else records(mapped.books),
        "recording": {} if mapped is None else mapped.facts,
        "notes": summary.notes,
    }  # fmt: skip


def csv(summary: MapSummary, *, table: str) -> str:
    """Return the table "operations" or "functions" (of all events) as CSV."""
    if table == "operations":
        return str(spreadsheet_cells.table(summary.operations).to_csv(index=False))
    rows = summary.functions if summary.mapped is None else summary.mapped.functions
    return str(spreadsheet_cells.table(rows).to_csv(index=False))
