"""The report as a document for programs: `lotus report RUN --json`.

Units are in the names: `_ns` nanoseconds, `_share` a fraction of 1, `_bytes`, `_per_s`. What was
not measured is null. Keys are only ever added within one `schema`. `lotus schema report` has all
keys; the tables' columns are those of `lotus.analysis`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lotus.analysis.common.columns import plain_value, records
from lotus.analysis.counters.function_profile import MapSummary
from lotus.analysis.ranks.rank_verdict import RankSummary
from lotus.analysis.summary import LoaderSummary, Summary
from lotus.analysis.verdict.verdict import Verdict
from lotus.reporters.map import map_tables
from lotus.reporters.ranks import rank_report
from lotus.reporters.run.parts.coverage import ceiling_bounds

SCHEMA = 1
_RUN = "command state exit_code signal level batches every max_log host ranks".split()


def document(summary: Summary, *, measured: MapSummary | None = None) -> dict[str, Any]:
    """Return the document as JSON-able values; `measured`: counters and functions, if any."""
    manifest = summary.manifest
    start, end = manifest.get("start_ns"), manifest.get("end_ns")
    loaders = [_loader(loader) for loader in summary.loaders]
    run = {
        "path": summary.path,
        **{name: manifest.get(name) for name in _RUN},
        "lotus": manifest.get("lotus"),
        "elapsed_ns": end - start if start and end else None,
        "threshold_ns": summary.threshold_ns,
    }
    content = {
        "schema": SCHEMA,
        "run": run,
        "verdict": None if summary.verdict is None else verdict_document(summary.verdict),
        "loaders": loaders,
        "loaders_left_out": summary.loaders_left_out,
        "ranks": None if summary.ranks is None else ranks_document(summary.ranks),
        "open_waits": summary.open_waits,
        "lost": summary.lost,
        "unseen": summary.unseen,
        "notes": summary.notes,
        "time": None if summary.time is None else dataclasses.asdict(summary.time),
        "map": None if measured is None else map_tables.document(measured),
    }
    plain = plain_document(content)
    assert isinstance(plain, dict)
    return plain


def _loader(loader: LoaderSummary) -> dict[str, Any]:
    scope = loader.scope
    return {
        "loader": scope.loader,
        "ranks": scope.ranks,
        "settings": scope.settings,
        "verdict": verdict_document(loader.verdict),
        "held_up": None if loader.held_up is None else dataclasses.asdict(loader.held_up),
        "times": loader.times
        | {
            f"{name}_{end}_samples_per_s": bound
            for name, bounds in ceiling_bounds(loader).items()
            for end, bound in zip(("low", "high"), bounds, strict=True)
        },
        "counted": loader.counted,
        "phases": {f"{name}_ns": ns for name, ns in loader.phases.items()},
        "operations": loader.operations,
        "other_time": loader.other_time,
        "blocked": loader.blocked,
        "books": loader.books,
        "slowest_samples": loader.slowest,
        "slow_batches": loader.slow_batches,
        "batches": loader.batches,
        "order": loader.order,
        "workers": loader.workers,
        "rank_times": loader.ranks,
        "epochs": loader.epochs,
        "passes": dataclasses.asdict(loader.passes),
        "coverage": loader.coverage,
        "machine": dataclasses.asdict(loader.machine),
        "device": None if loader.device is None else dataclasses.asdict(loader.device),
    }


def verdict_document(judged: Verdict) -> dict[str, Any]:
    """Return a verdict as a dictionary, without what only the order of advice needs."""
    content = dataclasses.asdict(judged)
    for cause in content["causes"]:
        del cause["unnamed_advice"]
    return content


def ranks_document(summary: RankSummary) -> dict[str, Any]:
    """Return the part on the ranks as JSON-able values."""
    content = {
        "verdict": rank_report.verdict(summary),
        "remarks": rank_report.remarks(summary),
        "synced": summary.steps.synced,
        "world_size": summary.steps.world_size,
        "missing": summary.missing,
        "decided": summary.decided,
        "undecided": summary.undecided,
        "mean_ns": summary.mean_ns,
        "stragglers": [dataclasses.asdict(straggler) for straggler in summary.stragglers],
        "table": summary.table,
        "steps": summary.over,
        "loaders": summary.steps.loaders,
        "thinned": summary.steps.thinned,
    }
    plain = plain_document(content)
    assert isinstance(plain, dict)
    return plain


def plain_document(value: Any) -> Any:
    """Convert tables to lists of rows, and numbers that are not finite to None."""
    if isinstance(value, pd.DataFrame):
        return records(value)
    if isinstance(value, Mapping):
        return {str(name): plain_document(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_document(item) for item in value]
    return plain_value(value)
