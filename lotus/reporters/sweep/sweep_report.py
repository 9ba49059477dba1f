"""A sweep on a terminal, and as a document for programs.

The document: units are in the names (`_s` seconds, `_us` microseconds, `_share` and `_bound`
fractions of 1, `_bytes`); what was not measured is null or absent. `lotus schema report-sweep` has
all keys, which are only ever added within one `schema`.

low and high are the 95 % interval of the mean over repeats (Student's t), null with one repeat.
The measures are those of `lotus.sweep.run_numbers`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from lotus.analysis.common.columns import plain_value, records
from lotus.common.text import redaction
from lotus.common.text.formatting import (
    amount,
    big,
    command,
    duration,
    operation_name,
    plain,
    plural,
    share,
    size,
)
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.sweep.knee import Knee
from lotus.sweep.run_numbers import OPERATION_MEASURES
from lotus.sweep.sweep_summary import Series, SweepSummary
from lotus.sweep.switched import Switch, switches

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
_MOST_OPERATIONS = 12
_MOST_NAMED = 8  # settings in a sentence
_PARAMETERS = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch",
    "pin_memory": "pinned",
    "persistent_workers": "persistent",
    "start_method": "start",
}
_SWITCHES = {"pin_memory": "Pinned memory", "persistent_workers": "Persistent workers"}
_HOST = ("host", "cpu", "memory_bytes", "kernel", "lotus", "torch", "seed", "level", "counters")


def write(console: "Console", summary: SweepSummary) -> None:
    """Print the knee and what saturates first, then the settings."""
    for line in heading_lines(summary):
        console.print(line, style="dim", soft_wrap=True)
    console.print()
    for text in sentences(summary):
        print_paragraph(console, "", text)
    _settings(console, summary)
    _machine(console, summary)
    _operations(console, summary)
    _failed(console, summary)
    for note in summary.notes:
        print_paragraph(console, "note", plain(note))
    if summary.pending:
        again = command(["lotus", "sweep", "--resume", summary.path])
        console.print(f"\nnext: {again}", soft_wrap=True)


def heading_lines(summary: SweepSummary) -> list[str]:
    """Return what was swept, where, and how much of it is done."""
    facts = summary.manifest
    cpu = facts.get("cpu")
    model = cpu.get("model") if isinstance(cpu, dict) else None
    cores = "" if math.isnan(summary.cores) else f", {plural(summary.cores, 'core')}"
    torch = f", torch {facts['torch']}" if facts.get("torch") else ""
    lines = [
        f"{plain(summary.path)}: {command(_command(facts))}",
        f"{plain(facts.get('host') or 'an unknown host')}: {plain(model or 'unknown CPU')}{cores}"
        f"{plain(torch)}",
        f"{plural(len(summary.settings), 'setting')}, {summary.done} of "
        f"{plural(summary.planned, 'run')} done"
        + (f", {len(summary.failed)} failed" if summary.failed else "")
        + (f", {summary.pending} not made yet" if summary.pending else ""),
    ]
    if summary.loaders:
        several = f" ({plural(len(summary.loaders), 'loader')}: the runs differ)"
        lines.append(plain(summary.loaders[0]) + (several if len(summary.loaders) > 1 else ""))
    return lines


def sentences(summary: SweepSummary) -> list[str]:
    """Return each series' knee and what saturates, the best series first."""
    if not len(summary.runs):
        return ["No run of this sweep counts yet, so there is nothing to compare."]
    texts = []
    missing = _not_compared(summary)
    for series in ordered(summary):
        name = f"{series.name}: " if series.name and len(summary.series) > 1 else ""
        if series.knee is not None:
            texts.append(plain(name + knee_text(series.knee)))
        if missing:
            texts.append(missing)
            missing = ""
        texts += [plain(name + limit.text) for limit in series.limits]
    return [*map(_switch_text, switches(summary)), *texts]


def _switch_text(switch: Switch) -> str:
    """Return which side of a switch is faster, and by how much."""
    what, shown = _SWITCHES[switch.name], switch.speedup
    faster, other = ("on", "off") if switch.on else ("off", "on")
    times = f"{shown.mean:.3g} times as fast"
    if shown.pairs < 2:
        why = f"{times} in the one round of both, which is too few to be sure"
        return f"{what}, {switch.others}: {faster} was {why}."
    spread = f"95 % interval {shown.low:.3g} to {shown.high:.3g}, {shown.pairs} rounds"
    if shown.is_significant:
        return f"{what}, {switch.others}: {faster} is {times} as {other} ({spread})."
    neither = f"neither is shown to be faster ({faster}: {times}; {spread})"
    return f"{what}, {switch.others}: {neither}."


def _not_compared(summary: SweepSummary) -> str:
    """Return a sentence on settings of which every run failed; "" if there are none."""
    counted = set(summary.runs["setting"])
    failed = {str(failure["label"]) for failure in summary.failed}
    names = [
        name for place, name in enumerate(summary.labels) if name in failed and place not in counted
    ]
    if not names:
        return ""
    several = len(names) > 1 or not names[0].startswith("1 worker")
    listed = "; ".join(names[:_MOST_NAMED])
    listed += f"; and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return plain(f"{listed} failed and {'are' if several else 'is'} not compared.")


def ordered(summary: SweepSummary) -> list[Series]:
    """Return the series, the one with the best throughput first."""
    return sorted(summary.series, key=lambda series: series is not summary.best)


def knee_text(knee: Knee) -> str:
    """Return a sentence on a knee."""
    single, few = knee.workers == 1, plural(knee.workers, "worker")
    if knee.undecided:
        best = plural(knee.best_workers, "worker")
        return (
            "Repeats differ too much to tell how many workers are enough: the 95 % interval, "
            f"{knee.low} to {knee.high}, includes all that were tried. {best} gave the best mean."
        )
    if knee.last:
        text = f"{few}, the most that were tried, give{'s' if single else ''} the best throughput"
    elif knee.workers == knee.best_workers:
        text = f"{few} {'is' if single else 'are'} enough: more workers gain nothing"
    else:
        text = (
            f"{few} {'is' if single else 'are'} enough: {knee.of_best:.1%} of the best throughput, "
        )
        text += f"which {knee.best_workers} gave"
    if knee.low is None:
        return f"{text}. No setting was run twice, so there is no interval."
    if knee.low == knee.high:
        return f"{text} (95 % interval: {knee.low} only)."
    return f"{text} (95 % interval: {knee.low} to {knee.high})."


def _settings(console: "Console", summary: SweepSummary) -> None:
    names = (*_names(summary), "runs", "samples/s", "command", "loop", "waits", "idle", "1st batch")
    columns = [(name, RIGHT) for name in names]
    rows = []
    for place in range(len(summary.settings)):
        count = int((summary.runs["setting"] == place).sum()) if len(summary.runs) else 0
        cells = [*_values(summary, place), str(count)]
        cells[0] += _mark(summary, place)
        cells.append(interval(summary, place, "samples_per_s", amount))
        cells.append(interval(summary, place, "elapsed_s", seconds))
        cells.append(interval(summary, place, "loop_s", seconds))
        cells += [share(summary.of(place, name)[0]) for name in ("wait_share", "idle_share")]
        cells.append(seconds(summary.of(place, "startup_s")[0]))
        rows.append(cells)
    print_table(
        console,
        "Settings (mean ± 95 % over repeats)",
        columns,
        rows,
        spare=("1st batch", "idle", "command"),
    )
    marked = any(" <" in row[0] for row in rows)
    enough = "<: as many workers as are enough; " if marked else ""
    text = f"{enough}waits: of the loop's time, start-up included; idle: of the workers' time"
    print_paragraph(console, "", text)


def _names(summary: SweepSummary) -> list[str]:
    """Return a column title for each parameter that is set."""
    return [_PARAMETERS.get(name, name) for name in summary.varied]


def _values(summary: SweepSummary, place: int) -> list[str]:
    """Return a setting's values in these columns."""
    words = {None: "-", True: "yes", False: "no"}
    setting = summary.settings[place]
    alone = {} if setting.num_workers else {"persistent_workers": "-", "prefetch_factor": "-"}
    cells = []
    for name in summary.varied:
        value = getattr(setting, name)
        text = words[value] if value is None or isinstance(value, bool) else str(value)
        cells.append(alone.get(name, text))
    return cells


def _mark(summary: SweepSummary, place: int) -> str:
    knees = [
        series.knee.workers
        for series in summary.series
        if series.knee and not series.knee.undecided and place in series.settings
    ]
    return " <" if summary.settings[place].num_workers in knees else ""


def _machine(console: "Console", summary: SweepSummary) -> None:
    names = ("CPU time", "cores", "no core", "waiting", "read", "faults", "switches", "memory")
    columns = [(name, RIGHT) for name in (*_names(summary), *names)]
    hardware = [("IPC", "ipc", amount), ("front end", "frontend_bound", share),
                ("back end", "backend_bound", share),
                ("DRAM loads", "dram_loads_per_sample", big)]  # fmt: skip
    hardware = [pair for pair in hardware if pair[1] in summary.runs]
    rows, counted = [], []
    for place in range(len(summary.settings)):

        def mean(measure: str, place: int = place) -> float:
            return summary.of(place, measure)[0]

        faults = mean("minor_faults") + mean("major_faults")
        switches = mean("voluntary_switches") + mean("involuntary_switches")
        cells = [*_values(summary, place), duration(1e3 * mean("cpu_us_per_sample"))]
        cells += [
            share(mean(measure)) for measure in ("fetch_utilisation", "queue_share", "off_share")
        ]
        cells += [size(mean("read_bytes")), amount(faults), amount(switches)]
        cells.append(size(mean("memory_bytes")))
        rows.append(cells)
        counted.append([*_values(summary, place)])
        counted[-1] += [say(mean(measure)) for _, measure, say in hardware]
    spare = ("switches", "faults", "read")
    print_table(console, "What fetching costs the machine", columns, rows, spare=spare)
    print_paragraph(
        console,
        "",
        "CPU time: of a sample; cores: used by fetching, of all; of the fetches' time, no core: "
        "ready to run without one, waiting: for something else",
    )
    if hardware:
        columns = [(name, RIGHT) for name in (*_names(summary), *(each[0] for each in hardware))]
        print_table(console, "How fetching uses the CPU's pipeline", columns, counted)


def _operations(console: "Console", summary: SweepSummary) -> None:
    wanted: list[tuple[str, str, Callable[[float], str]]] = []
    wanted.append(("cpu_s", "CPU seconds per operation", seconds))
    if summary.counted:
        wanted += [("frontend_bound", "Slots lost to the front end", share),
                   ("backend_bound", "Slots lost to the back end", share),
                   ("ipc", "Instructions a cycle", amount),
                   ("dram_loads", "Loads that memory served", big)]  # fmt: skip
    for measure, title, say in wanted:
        table = summary.per_operation(measure)
        if not len(table):
            continue
        lines = summary.best.settings if summary.best is not None else []
        places = [place for place in lines if place in table]
        if not places:
            continue
        counts = [summary.settings[place].num_workers for place in places]
        columns = [("", LEFT), *((plural(count, "worker"), RIGHT) for count in counts)]
        if len(summary.series) > 1 and summary.best is not None and summary.best.name:
            title += f", {summary.best.name}"
        rows = [
            [plain(operation_name(row["operation"])), *(say(float(row[place])) for place in places)]
            for _, row in table.head(_MOST_OPERATIONS).iterrows()
        ]
        if len(table) > _MOST_OPERATIONS:
            title += f" (the {_MOST_OPERATIONS} largest of {len(table)})"
        print_table(console, title, columns, rows, names_in=(0,))


def _failed(console: "Console", summary: SweepSummary) -> None:
    columns = [("", LEFT), ("round", RIGHT), ("why", LEFT), ("output", LEFT)]
    rows = [
        [
            plain(failure["label"]),
            str(failure["repeat"] + 1),
            plain(failure["problem"]),
            plain(failure["log"]),
        ]
        for failure in summary.failed
    ]
    print_table(console, "Runs that failed, and do not count", columns, rows)


def seconds(value: float) -> str:
    """Format a duration in seconds."""
    return duration(1e9 * value)


def interval(summary: SweepSummary, place: int, measure: str, say: Any) -> str:
    """Format a mean with half its interval: `423 ±12`; without it for one repeat."""
    mean, _, high = summary.of(place, measure)
    if math.isnan(mean) or math.isnan(high):
        return str(say(mean))
    return f"{say(mean)} ±{say(high - mean)}"


def document(summary: SweepSummary) -> dict[str, Any]:
    """Return the document as JSON-able values."""
    manifest = summary.manifest
    settings = []
    for place, setting in enumerate(summary.settings):
        settings.append(
            {
                "label": summary.labels[place],
                "setting": {name: getattr(setting, name) for name in summary.varied},
                "measures": _measured(summary.measures, place),
                "operations": _operations_of(summary, place),
            }
        )
    return {
        "schema": SCHEMA,
        "sweep": {
            "path": summary.path,
            "command": _command(manifest),
            **{name: manifest.get(name) for name in _HOST},
            "cores": plain_value(summary.cores),
            "varied": list(summary.varied),
            "loaders": summary.loaders,
            "planned": summary.planned,
            "done": summary.done,
            "pending": summary.pending,
        },
        "settings": settings,
        "series": [_series(series) for series in ordered(summary)],
        "runs": records(summary.runs),
        "failed": summary.failed,
        "notes": summary.notes,
    }


def _measured(table: pd.DataFrame, place: int) -> dict[str, Any]:
    mine = table[table["setting"] == place]
    return {str(row["measure"]): _numbers(row) for row in records(mine)}


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("mean", "low", "high", "repeats")}


def _operations_of(summary: SweepSummary, place: int) -> list[dict[str, Any]]:
    table = summary.operations
    operations: dict[tuple[str, str], dict[str, Any]] = {}
    for row in records(table[table["setting"] == place]) if len(table) else []:
        measured = operations.setdefault((row["kind"], row["operation"]), {})
        if row["measure"] in OPERATION_MEASURES:
            measured[row["measure"]] = _numbers(row)
    return [
        {"kind": kind, "operation": name, "measures": measures}
        for (kind, name), measures in operations.items()
    ]


def _series(series: Series) -> dict[str, Any]:
    knee = None
    if series.knee is not None:
        knee = dataclasses.asdict(series.knee)
        knee["shares"] = {str(workers): part for workers, part in series.knee.shares.items()}
    limits = [
        {
            "kind": limit.kind,
            "text": limit.text,
            "evidence": {name: plain_value(value) for name, value in limit.evidence.items()},
        }
        for limit in series.limits
    ]
    return {"name": series.name, "settings": series.settings, "knee": knee, "limits": limits}


def _command(manifest: Mapping[str, Any]) -> list[str]:
    """Return the words of the command, without secrets that an earlier version may have kept."""
    return redaction.command([str(word) for word in manifest.get("command") or ()])
