"""The report on a program observed from outside: text, and the document of --json."""

import dataclasses
import math
import shlex
from typing import TYPE_CHECKING, Any

from lotus.analysis.attached.charges.loader_settings import LoaderSettings
from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.verdict.sampled_verdict import AttachedSummary, LoopSummary
from lotus.analysis.verdict.rest_of_causes import rest_of
from lotus.analysis.verdict.verdict import Verdict
from lotus.common.text.formatting import (
    amount,
    brief_command,
    duration,
    factor,
    operation_name,
    plain,
    plural,
    share,
    size,
)
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of
from lotus.reporters.run.attached import attached_counters, attached_functions
from lotus.reporters.run.parts import coverage, time_bars, verdict_paragraphs
from lotus.reporters.run.run_document import plain_document, verdict_document

if TYPE_CHECKING:  # rich is imported when there is something to print
    import pandas as pd
    from rich.console import Console

SCHEMA = 1
Cells = tuple[list[tuple[str, str]], list[list[str]]]
_MOST_CAUSES, _MOST_OPERATIONS = 5, 20
_PARTS = {
    phases.DATASET: "(the data set's own code)", phases.COLLATE: "(collate)",
    phases.SNAPSHOT: "(snapshots of the loader's state)",
}  # fmt: skip
EXACT = "Sampled, not recorded: batches, samples and their order are in a run of lotus trace only."


def write(console: "Console", summary: AttachedSummary, *, in_full: bool = True) -> None:
    """Print the report; without `in_full`, perf's functions in one sentence."""
    for line in heading_lines(summary):
        console.print(line, style="dim", soft_wrap=True)
    console.print()
    if summary.verdict is None:
        console.print("NO VERDICT", style="bold yellow")
        print_paragraph(console, "", plain(summary.no_verdict))
    else:
        _verdict(console, summary, summary.verdict)
    lines = list(time_bars.lines_of(summary.time, time_parts(summary)))
    if lines:
        console.print()
    for line in lines:
        console.print(line, soft_wrap=True)
    if summary.loops:
        _loop(console, summary.loops[0])
    for other in summary.loops[1:]:
        words = coverage.verdict_words(other.verdict).lower()
        print_paragraph(console, "", f"{plain(other.title)}: {words}")
    _processes(console, summary)
    if summary.counters is not None:
        attached_counters.write(console, summary.counters)
    if summary.functions is not None:
        attached_functions.write(console, summary.functions, in_full=in_full)
    for line in (*summary.evidence.missing, *summary.remarks):
        print_paragraph(console, "", plain(line))
    print_paragraph(console, "", EXACT)


def heading_lines(summary: AttachedSummary) -> list[str]:
    """Return what was observed, and by how many samples."""
    facts = summary.evidence.facts
    words = brief_command(facts["command"], 50)
    looks = amount(len(summary.evidence.looks))
    return [
        f"lotus attach: {words}, process {facts['pid']}, watched for "
        f"{duration(summary.evidence.elapsed_ns)}",
        f"Sampled from outside: {plural(summary.stacks, 'stack')}, {looks} looks at threads",
    ]


def verdict_words(judged: Verdict) -> str:
    """Return the verdict in capitals, marked as sampled."""
    return f"{coverage.verdict_words(judged)} (sampled)"


def time_parts(summary: AttachedSummary) -> list[tuple[str, float, float]]:
    """Return (part, nanoseconds, share) of the observed time."""
    names = {loop.loop: plain(loop.name) for loop in summary.loops}
    return list(time_bars.parts_of(summary.time, names))


def _verdict(console: "Console", summary: AttachedSummary, judged: Verdict) -> None:
    verdict_paragraphs.write(
        console, judged, headline=verdict_words(judged), ruled_out=judged.ruled_out
    )
    if not summary.loops:
        return
    loop = summary.loops[0]
    print_paragraph(console, "Loop", f"{plain(loop.title)}, {worker_words(loop)}")
    if loader := loader_words(loop.settings):
        print_paragraph(console, "Loader", loader)
    if math.isfinite(loop.ceiling) and judged.kind == "input-bound":
        print_paragraph(
            console,
            "Ceiling",
            f"with every batch ready, and steps as they are, {factor(loop.ceiling)} times as fast",
        )


def worker_words(loop: LoopSummary) -> str:
    """Return how many workers a loop has, and how idle they are."""
    words = plural(loop.workers, "worker")
    if not loop.workers:
        return words
    return (
        f"{words}, idle {share(loop.idle_share)} of {'its' if loop.workers == 1 else 'their'} time"
    )


def loader_words(settings: LoaderSettings) -> str:
    """Return a loader's settings as seen in torch's frames; "" if none were seen."""
    words = []
    if settings.dataset:
        kind = ", iterable" if settings.iterable else ""
        words.append(f"{plain(settings.dataset)}{kind}")
    if settings.in_sequence is not None:
        words.append("samples in sequence" if settings.in_sequence else "samples shuffled")
    if settings.batch_sizes is not None:
        least, most = settings.batch_sizes
        same = f"batch_size={most or None}"
        words.append(same if least == most else f"batches of {least} to {most} samples")
    for name in ("drop_last", "persistent_workers", "pin_memory"):
        if (value := getattr(settings, name)) is not None:
            words.append(f"{name}={value}")
    if settings.spawned:
        words.append("workers spawned")
    return f"{', '.join(words)} (read from torch's frames)" if words else ""


def _loop(console: "Console", loop: LoopSummary) -> None:
    causes = loop.verdict.largest_causes(_MOST_CAUSES)
    if len(causes) > 1:
        rows = [
            [plain(cause.title), share(cause.share), coverage.interval(cause)] for cause in causes
        ]
        rest = rest_of(causes)
        rows += [[rest.title, share(rest.share), ""]] if rest else []
        headings = [("", LEFT), ("of loop", RIGHT), ("95% interval", RIGHT)]
        print_table(console, "What the loop's time is spent on", headings, rows, wrap_labels=True)
    if loop.places is not None:
        headings, rows = place_cells(loop.places)
        print_table(console, "Where the threads stand", headings, rows, wrap_labels=True)
        return
    headings, rows = operation_cells(loop)
    print_table(console, "Operations (share: of the making of batches)", headings, rows, (0,))
    if len(loop.rank_rows) > 1:
        rows = [
            [f"{row['rank']:.0f}", f"{row['pid']:.0f}", share(row["wait_share"]),
             share(row["step_share"]), share(row["step_blocked_share"])]
            for row in rows_of(loop.rank_rows)
        ]  # fmt: skip
        headings = [("rank", RIGHT), ("pid", RIGHT), ("waits", RIGHT), ("step", RIGHT)]
        headings += [("step blocked", RIGHT)]
        print_table(
            console,
            "Ranks (in a synchronised job, the one that waits most holds up the others)",
            headings,
            rows,
        )


def place_cells(places: "pd.DataFrame") -> Cells:
    """Return columns and rows of where threads stand."""
    rows = [
        [
            f"{row['pid']:.0f}",
            _process_words({**row, "count": 1, "ended": 0}) if not row["thread"] else "thread",
            plain(row["thread"]),
            plain(row["at"]),
            row["reason"] or "-",
        ]
        for row in rows_of(places)
    ]
    headings = [("pid", RIGHT), ("", LEFT), ("thread", LEFT), ("stands at", LEFT),
                ("blocked in", LEFT)]  # fmt: skip
    return headings, rows


def operation_cells(loop: LoopSummary) -> Cells:
    """Return columns and rows of the parts of making batches."""
    rows = [
        [
            operation_words(row["phase"], row["name"]),
            share(row["share"]),
            share(row["computing_share"]),
            share(row["ready_share"]),
            row["reason"] or "-",
        ]
        for row in rows_of(loop.operations.head(_MOST_OPERATIONS))
    ]
    headings = [
        ("", LEFT), ("share", RIGHT), ("computing", RIGHT), ("without core", RIGHT),
        ("blocked in", LEFT),
    ]  # fmt: skip
    return headings, rows


def operation_words(phase: str, name: str) -> str:
    """Return the display name of a part of making batches."""
    return _PARTS.get(phase) or plain(operation_name(name))


def _processes(console: "Console", summary: AttachedSummary) -> None:
    headings, rows = process_cells(summary)
    print_table(console, "Processes (main threads)", headings, rows)


def process_cells(summary: AttachedSummary) -> Cells:
    """Return columns and rows of the processes."""
    rows = []
    for row in rows_of(summary.process_rows):
        cores = f"{row['cores_used']:.2f}" if math.isfinite(row["cores_used"]) else "-"
        shares = [
            share(row[f"{name}_share"]) if math.isfinite(row[f"{name}_share"]) else "-"
            for name in ("computing", "ready", "blocked")
        ]
        read_size = size(row["read_bytes"]) if math.isfinite(row["read_bytes"]) else "-"
        pid = f"{row['pid']:.0f}" if row["count"] == 1 else ""
        rows.append([pid, _process_words(row), cores, *shares, read_size])
    headings = [
        ("pid", RIGHT), ("", LEFT), ("cores used", RIGHT), ("computing", RIGHT),
        ("without core", RIGHT), ("blocked", RIGHT), ("read", RIGHT),
    ]  # fmt: skip
    return headings, rows


def _process_words(row: dict[str, Any]) -> str:
    """Return which process a row is of, or how many it stands for."""
    if row["count"] > 1:
        count = f"{row['count']:.0f}"
        if row["ended"] == 1:
            return f"{count} that ended"
        return f"{count} more {'workers' if row['worker'] >= 0 else 'processes'}"
    words = "main" if row["worker"] < 0 else f"worker {row['worker']:.0f}"
    words += f", rank {row['rank']:.0f}" if row["rank"] > 0 else ""
    return f"{words}, ended" if row["ended"] == 1 else words


def next_command(summary: AttachedSummary, path: str) -> str:
    """Return what to type next."""
    return f"lotus report {plain(shlex.quote(path))}"


def document(summary: AttachedSummary) -> dict[str, Any]:
    """Return the document as JSON-able values."""
    facts = summary.evidence.facts
    names = ("command", "host", "state", "pid", "cores", "machine_cores", "stacks", "errors",
             "torn", "bound_ns", "lotus")  # fmt: skip
    functions, counters = summary.functions, summary.counters
    content = {
        "schema": SCHEMA,
        "sampled": True,
        "run": {
            "path": summary.path,
            **{name: facts[name] for name in names},
            "elapsed_ns": summary.evidence.elapsed_ns,
            "samples": summary.stacks,
            "looks": len(summary.evidence.looks),
        },
        "verdict": None if summary.verdict is None else verdict_document(summary.verdict),
        "loops": [_loop_document(loop) for loop in summary.loops],
        "time": None if summary.time is None else dataclasses.asdict(summary.time),
        "processes": summary.processes,
        "missing": list(summary.evidence.missing),
        "remarks": list(summary.remarks),
        "functions": None if functions is None else attached_functions.document(functions),
        "counters": None if counters is None else attached_counters.document(counters),
    }
    document = plain_document(content)
    assert isinstance(document, dict)
    return document


def _loop_document(loop: LoopSummary) -> dict[str, Any]:
    return {
        "loop": loop.loop,
        "title": loop.title,
        "workers": loop.workers,
        "loop_ns": loop.loop_ns,
        "wait_ns": loop.wait_ns,
        "step_ns": loop.step_ns,
        "idle_share": loop.idle_share,
        "ceiling": loop.ceiling,
        "samples": loop.samples,
        "left_out_ns": loop.left_out_ns,
        "alone_share": loop.alone_share,
        "held_up_by": loop.held_up_by,
        "settings": dataclasses.asdict(loop.settings),
        "verdict": verdict_document(loop.verdict),
        "intervals": [[cause.low, cause.high] for cause in loop.verdict.causes],
        "operations": loop.operations,
        "workers_table": loop.worker_rows,
        "places": loop.places,
        "ranks": loop.rank_rows,
    }
