"""The measurements as one page of Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

SHARES = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")


def write(facts: dict[str, Any]) -> str:
    """Return the page; what was not measured is said in its place."""
    machine = facts["machine"]
    lines = [
        f"# {machine['cpu']}, Linux {machine['kernel']}, {facts['date']}",
        "",
        f"{machine['cpus']} CPUs, {'virtual machine' if machine['virtual'] else 'no VM seen'}, "
        f"Python {machine['python']}, torch {machine['torch'] or 'not installed'}, "
        f"lotus {facts['commit']}; {facts['seconds']:.0f} s. Made by `tools/silicon.sh`.",
        "",
        f"Other work: load {facts['load'][0]:.1f} before, {facts['load'][1]:.1f} after.",
        "",
        "## What counts",
        "",
        f"{facts['counts_at_once']} hardware events count correctly at once, "
        f"{facts['announced']} can be opened. Counted by `--counters`: "
        f"{', '.join(facts['chosen']) or 'nothing'}.",
        *(f"- {note}" for note in facts["notes"]),
        "",
    ]
    lines += _loops(facts) + _readings(facts) + _pipelines(facts) + _cost(facts)
    return "\n".join(lines).rstrip() + "\n"


def _loops(facts: dict[str, Any]) -> list[str]:
    lines = ["## Loops whose counts can be calculated", ""]
    if not facts["loops"]:
        return [*lines, f"Not measured: {facts['no_loops']}.", ""]
    rows = []
    for loop in facts["loops"]:
        for name, row in loop["counts"].items():
            if row["expected"] is not None:
                off = row["counted"] - row["expected"]
                error = f"{off / row['expected']:+.3%}" if row["expected"] else f"{off:+.5f}"
                rows.append(
                    (loop["loop"], name, f"{row['expected']:.4g}", f"{row['counted']:.5f}", error)
                )
    lines += _table(("loop", "event", "a round, calculated", "counted", "off"), rows)
    shares = [loop for loop in facts["loops"] if loop.get("topdown")]
    if shares:
        lines += [
            "Top-down level 1; the sum is of the events that fill the slots, each by itself:",
            "",
        ]
        names = (*SHARES, "sum")
        lines += _table(
            ("loop", *(name.replace("_", " ") for name in names)),
            [(loop["loop"], *(_share(loop["topdown"][name]) for name in names)) for loop in shares],
        )
    deeper = [loop for loop in facts["loops"] if loop.get("level_2")]
    if deeper:
        names = tuple(deeper[0]["level_2"])
        lines += ["Level 2, in shares of slots; `-`: too rare to be told apart:", ""]
        lines += _table(
            ("loop", *(name.replace("_", " ") for name in names)),
            [
                (loop["loop"], *(_number(loop["level_2"][name], 100, "{:.1f} %") for name in names))
                for loop in deeper
            ],
        )
    return lines


def _share(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 4) + 0.0:.2%}"


def _readings(facts: dict[str, Any]) -> list[str]:
    if not facts["readings"]:
        return []
    rows = [
        (
            ", ".join(row["events"]),
            f"{row['read_ns'] / 1000:.2f} µs",
            "-" if row["rdpmc_ns"] is None else f"{row['rdpmc_ns'] / 1000:.2f} µs",
        )
        for row in facts["readings"]
    ]
    heading = ("group", "read(2) of all", "rdpmc of its first")
    return ["## One reading, from C", "", *_table(heading, rows)]


def _pipelines(facts: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for run in facts["pipelines"]:
        lines += [f"## {run['pipeline']}, workers: {run['workers']}", ""]
        if run.get("failed"):
            lines += [f"Not measured: {run['failed']}.", ""]
            continue
        rows = []
        for row in run["operations"]:
            rows.append(
                (
                    row["operation"],
                    f"{row['intervals']:,}",
                    _number(row["instructions"], 1, "{:,.0f}"),
                    _number(row["ipc"], 1, "{:.2f}"),
                    *(_number(row[share], 100, "{:.1f} %") for share in SHARES),
                    _number(row["samples"], 1, "{:,.0f}"),
                    _number(row["joined_error"], 100, "{:+.1f} %")
                    + _number(row["joined_width"], 100, " (±{:.1f})", ""),
                )
            )
        heading = ("operation", "times", "instructions", "IPC", "front end", "back end")
        heading += ("retiring", "bad speculation", "samples", "joined against exact (95 %)")
        lines += _table(heading, rows)
    sampled = sorted({event for run in facts["pipelines"] for event in run.get("sampled", ())})
    if facts["pipelines"]:
        lines += [
            "Instructions, IPC and shares are counted exactly, in user space; samples are of "
            f"{', '.join(sampled) or 'nothing'}, joined by time and held against the exact task "
            "clock.",
            "",
        ]
    return lines


def _cost(facts: dict[str, Any]) -> list[str]:
    cost = facts["instructions"]
    if not cost:
        return []
    lines = ["## What counting adds", ""]
    rows = [
        (
            row["pipeline"],
            f"{row['alone']:,.0f}",
            f"{row['traced'] / row['alone'] - 1:+.2%}",
            f"{row['counted'] / row['alone'] - 1:+.2%}",
        )
        for row in cost
    ]
    heading = ("program", "user instructions alone", "lotus trace", "lotus trace --counters")
    return [*lines, *_table(heading, rows)]


def _number(value: float | None, factor: float, form: str, absent: str = "-") -> str:
    return absent if value is None else form.format(value * factor)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    dashes = ["---", *("---:" for _ in heading[1:])]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heading, dashes, *rows)]
    return [*lines, ""]
