"""The report on a terminal: 80 columns are enough; colour only where there is a terminal."""

import io
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from lotus.analysis.columns import plain_value
from lotus.analysis.summary import LoaderSummary, Summary, summarise
from lotus.reporters import covering, reasons, short
from lotus.reporters.words import amount, duration, plain, plural, share, shorten, size

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

_MOST_OPERATIONS, _MOST_WORKERS, _MOST_CAUSES, _MOST_LOADERS, _NOTABLE = 25, 16, 5, 4, 1.5
_WIDEST, _NARROWEST = 110, 12  # of a line that is easy to read; of a column of names
_LEFT, _RIGHT = "left", "right"
_COLOURS = {"consumer-bound": "green", "unknown": "yellow"}


def report(run: Any) -> str:
    """The report of a `Run`, without colour, 80 columns wide."""
    file = io.StringIO()
    write(summarise(run), file)
    return file.getvalue()


def short_report(run: Any) -> str:
    """What is left of it at the end of `lotus trace`: about a dozen lines."""
    return "\n".join(short.short_report(run))


def write(summary: Summary, file: IO[str], loader: int | None = None) -> None:
    """Print the report; in full for `loader`, by default the one with the most samples."""
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False)
    for line in covering.heading(summary):
        console.print(line, style="dim", soft_wrap=True)
    if not summary.loaders:
        console.print("\nNo DataLoader was iterated in what was recorded.", style="bold")
    chosen = summary.loaders[0].scope.loader if summary.loaders and loader is None else loader
    ordered = sorted(summary.loaders, key=lambda one: one.scope.loader != chosen)
    for one in ordered[:_MOST_LOADERS]:
        _loader(console, one, summary, in_full=one.scope.loader == chosen)
    more = len(ordered[_MOST_LOADERS:]) + summary.loaders_left_out
    if more:
        console.print(f"\n{plural(more, 'smaller loader')} more: see --json", style="dim")
    _footer(console, summary)


def _loader(console: "Console", one: LoaderSummary, summary: Summary, in_full: bool) -> None:
    console.print()
    _verdict(console, one, in_full)
    if not one.coverage["batches_taken"] and not one.coverage["batches_made"]:
        return
    if in_full:
        _causes(console, one)
        _operations(console, one)
        _batches(console, one, summary.threshold_ns)
        _workers(console, one)
        _ranks(console, one)
        _slowest(console, one)
        _books(console, one)
    else:
        number = one.scope.loader
        console.print(f"  All of it: lotus report --loader {number} ...", style="dim")


def _verdict(console: "Console", one: LoaderSummary, in_full: bool) -> None:
    judged, times = one.verdict, one.times
    colour = _COLOURS.get(judged.kind, "red" if judged.degree != "moderately" else "yellow")
    console.print(covering.verdict_words(judged), style=f"bold {colour}")
    _paragraph(console, "", judged.summary)
    if judged.causes:
        first = judged.causes[0]
        _paragraph(
            console, "First cause", f"{plain(first.title)}, {share(first.share)} of the loop."
        )
        reason = reasons.reason(first)
        if reason:
            _paragraph(console, "Reason", reason)
        if in_full:
            _paragraph(console, "Next step", plain(first.advice))
    console.print()
    for line in covering.loader_lines(one):
        _paragraph(console, "", line)
    shares = (
        ("waiting", judged.input_share),
        ("step", judged.step_share),
        ("start-up", judged.startup_share),
        ("shut-down", judged.shutdown_share),
    )
    per_rank = times["loop_ns"] / max(len(one.scope.ranks), 1)
    text = ", ".join(f"{name} {share(value)}" for name, value in shares)
    of_rank = " per rank" if len(one.scope.ranks) > 1 else ""
    _paragraph(console, "Loop", f"{duration(per_rank)}{of_rank}: {text}")
    _paragraph(
        console,
        "Throughput",
        f"{amount(times['samples_per_s'])} samples/s "
        f"({plural(times['samples'], 'sample')} in {plural(times['batches'], 'batch')})",
    )
    _paragraph(
        console,
        "Start-up",
        f"{duration(times['startup_mean_ns'])} from iter() to the first batch, "
        f"shut-down {duration(times['shutdown_mean_ns'])}"
        + (f" (means of {plural(times['epochs'], 'epoch')})" if times["epochs"] > 1 else ""),
    )
    if one.order["batches"]:
        out = one.order["out_of_order_share"]
        early, late = one.order["early_share"], one.order["late_share"]
        _paragraph(
            console,
            "Order",
            f"{share(out)} of the batches arrived out of order "
            f"({share(early)} early, {share(late)} late)",
        )


def _causes(console: "Console", one: LoaderSummary) -> None:
    causes = one.verdict.causes
    rows = [
        [share(cause.share), share(cause.wait_share), plain(cause.title)]
        for cause in causes[:_MOST_CAUSES]
    ]
    if len(rows) > 1:
        columns = [("of loop", _RIGHT), ("of waits", _RIGHT), ("", _LEFT)]
        _table(console, "What the loop's time is owed to", columns, rows)
        for cause in causes[1:2]:
            _paragraph(console, "Then", plain(cause.advice))


def _operations(console: "Console", one: LoaderSummary) -> None:
    table = one.operations
    waits = bool(table["waiting_share"].notna().any())
    rows = []
    for row in _rows(table.head(_MOST_OPERATIONS)):
        name = ("  " if row["nested"] else "") + shorten(plain(row["operation"]), 40)
        times = [_short(row[f"{key}_ns"]) for key in ("mean", "p50", "p95", "p99", "std")]
        extra = [share(row["waiting_share"])] if waits else []
        rows.append([name, amount(row["count"]), *times, share(row["workers_share"]), *extra])
    empty = [""] * 6
    for row in _rows(one.other_time):
        if row["total_ns"] > 0:
            label = f"({row['part']})"
            rows.append([label, *empty, share(row["workers_share"]), *([""] if waits else [])])
    who = "the workers'" if one.scope.num_workers else "fetching"
    columns = [("", _LEFT), *((name, _RIGHT) for name in ("count", "mean", "p50", "p95", "p99"))]
    columns += [("std", _RIGHT), ("share", _RIGHT), *([("off CPU", _RIGHT)] if waits else [])]
    _table(console, f"Operations (share: of {who} time)", columns, rows)
    if len(table) > _MOST_OPERATIONS:
        console.print(f"  and {len(table) - _MOST_OPERATIONS} more: see --json", style="dim")


def _batches(console: "Console", one: LoaderSummary, threshold_ns: float) -> None:
    over = f"> {duration(threshold_ns)}"
    rows = [
        [row["measure"], *(_short(row[f"{key}_ns"]) for key in _SPREAD), share(row["over_share"])]
        for row in _rows(one.batches)
    ]
    columns = [("", _LEFT), *((name, _RIGHT) for name in (*_SPREAD, over))]
    _table(console, "Per batch (delay: ready, but not yet taken)", columns, rows)


_SPREAD = ("mean", "p50", "p95", "p99", "max")


def _workers(console: "Console", one: LoaderSummary) -> None:
    table, several = one.workers, len(one.scope.ranks) > 1
    memory = bool(table["pss_bytes"].notna().any())
    slow_first = table.sort_values("times", ascending=False, na_position="last", kind="stable")
    shown = table if len(table) <= _MOST_WORKERS else slow_first.head(_MOST_WORKERS)
    rows = []
    for row in _rows(shown):
        name = "main" if row["worker"] < 0 else str(row["worker"])
        cells = [f"{row['rank']}/{name}" if several else name, amount(row["samples"])]
        cells += [_short(row["batch_mean_ns"])]
        cells += [_short(row["sample_ns"]), share(row["idle_share"]), share(row["cpu_share"])]
        cells += [_short(row["startup_ns"])]
        if memory:
            cells += [_short_size(row["pss_bytes"]), _short_size(row["pss_growth_bytes"])]
        rows.append(cells)
    names = ["samples", "fetch", "a sample", "idle", "on CPU", "start-up"]
    names += ["memory", "grew"] if memory else []
    columns = [("rank/worker" if several else "worker", _LEFT), *((name, _RIGHT) for name in names)]
    _table(console, "Workers (a sample: its typical share of a batch)", columns, rows)
    if len(table) > len(shown):
        more = len(table) - len(shown)
        console.print(f"  the slowest first; {more} more: see --json", style="dim")


def _ranks(console: "Console", one: LoaderSummary) -> None:
    if len(one.ranks) < 2:
        return
    rows = [
        [str(row["rank"]), _short(row["loop_ns"]), share(row["wait_share"]),
         share(row["step_share"]), amount(row["samples_per_s"])]
        for row in _rows(one.ranks.sort_values("wait_share", ascending=False).head(_MOST_WORKERS))
    ]  # fmt: skip
    names = ("loop", "blocked", "step", "samples/s")
    columns = [("rank", _LEFT), *((name, _RIGHT) for name in names)]
    _table(console, "Ranks (most blocked first)", columns, rows)


def _slowest(console: "Console", one: LoaderSummary) -> None:
    rows = []
    # Of samples that are all alike, three say as much as ten.
    table = one.slowest
    for row in _rows(table[(table["times"] >= _NOTABLE) | (table.index < 3)]):
        index = "-" if row["sample"] == -1 else str(row["sample"])
        operation = shorten(plain(row["operation"]), 24)
        cells = [index, _short(row["duration_ns"]), f"{row['times']:.1f}x"]
        cells += [operation, f"{row['epoch']}/{row['batch']}", plain(row["path"])]
        rows.append(cells)
    paths = any(row[-1] for row in rows)
    # On one line each: a path keeps what the other columns leave.
    others = sum(max((len(row[place]) for row in rows), default=0) for place in (0, 1, 3))
    room = max(console.width - others - len("median") - len("epoch/batch") - 12, 16)
    rows = [[*row[:-1], shorten(row[-1], room)] for row in rows]
    columns = [("index", _RIGHT), ("took", _RIGHT), ("median", _RIGHT), ("mostly", _LEFT)]
    columns += [("epoch/batch", _RIGHT), ("path", _LEFT)]
    _table(
        console,
        "Slowest samples",
        columns if paths else columns[:-1],
        rows if paths else [row[:-1] for row in rows],
    )


def _books(console: "Console", one: LoaderSummary) -> None:
    rows = [
        [row["whole"], *(_short(row[f"{key}_ns"]) for key in ("total", "parts", "own")),
         _short(row["remainder_ns"]), share(row["remainder_share"])]
        for row in _rows(one.books)
    ]  # fmt: skip
    names = ("total", "parts", "itself", "remainder", "")
    columns = [("", _LEFT), *((name, _RIGHT) for name in names)]
    _table(console, "Books (fetch = samples + collate + itself)", columns, rows)


def _footer(console: "Console", summary: Summary) -> None:
    lines = [*covering.unseen(summary), *covering.losses(summary)]
    if lines:
        console.print("\nLost or not seen", style="bold")
        for line in lines:
            _paragraph(console, "", line)


def _short(ns: float) -> str:
    return duration(ns).replace(" ", "")


def _short_size(count: float) -> str:
    return size(count).replace(" ", "")


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with NaN for what was not measured, so that all numbers can be formatted alike."""
    rows = []
    for record in table.to_dict("records"):
        row = {str(name): plain_value(value) for name, value in record.items()}
        rows.append({name: float("nan") if value is None else value for name, value in row.items()})
    return rows


def _table(
    console: "Console",
    title: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[str]],
) -> None:
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    widths = [
        max(map(len, cells)) for cells in zip([name for name, _ in columns], *rows, strict=True)
    ]
    gap = 2 if sum(widths) + 2 * len(widths) + 2 <= console.width else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for width, (name, justify) in zip(widths, columns, strict=True):
        right = justify == _RIGHT
        table.add_column(
            Text(name),
            justify="right" if right else "left",
            no_wrap=right,
            min_width=min(width, _NARROWEST),
            overflow="ellipsis" if right else "fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if table.row_count:
        console.print(f"\n{title}", style="bold")
        from rich.padding import Padding

        console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _paragraph(console: "Console", label: str, text: str) -> None:
    """`text`, wrapped, after a label of fixed width."""
    from rich.text import Text

    indent = "  " + (f"{label:11} " if label else "")
    width = max(min(console.width, _WIDEST) - 1, len(indent) + 20)
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_on_hyphens=False,
    )
    for line in wrapped:
        shown = Text(line, no_wrap=True, overflow="ignore")
        shown.stylize("dim", 0, len(indent) if line is wrapped[0] else 0)
        console.print(shown, soft_wrap=True)
