"""`lotus map` as a document (`--json`) and as CSV."""

import json
from typing import Any

import pandas as pd

from lotus.analysis.columns import records
from lotus.analysis.functions import MapSummary
from native_map import pmu

SCHEMA = 1


def document(summary: MapSummary) -> dict[str, Any]:
    """What `lotus map --json` prints.

    Units: `_ns` nanoseconds, shares are fractions of 1, counts are of events; a metric's unit and
    formula stand in "metrics". What was not measured is null. "functions" holds every event.
    """
    mapped = summary.mapped
    metrics = {
        name: {"text": one.text, "unit": one.unit, "formula": one.formula, "source": one.source}
        for name, one in pmu.METRICS.items()
        if name in summary.operations
    }
    return {
        "schema": SCHEMA,
        "run": {"path": summary.path, "command": summary.manifest.get("command"),
                "host": summary.manifest.get("host"), "cpu": summary.cpu},
        "counted": summary.counted,
        "estimated": summary.sampled,
        "operations": records(summary.operations),
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


def text(summary: MapSummary) -> str:
    """The document as JSON text: ASCII, so that no name in it can steer a terminal."""
    return json.dumps(document(summary), indent=2, allow_nan=False)


def csv(summary: MapSummary, table: str) -> str:
    """The table "operations" or "functions" (of all events) as CSV."""
    if table == "operations":
        return str(summary.operations.to_csv(index=False))
    rows = summary.functions if summary.mapped is None else summary.mapped.functions
    return str(rows.to_csv(index=False))
