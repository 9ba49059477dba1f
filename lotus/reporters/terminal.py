"""The report on a terminal: 80 columns are enough; colour only where there is a terminal."""

import io
from typing import IO, TYPE_CHECKING, Any

from lotus.analysis.functions import MapSummary
from lotus.analysis.summary import LoaderSummary, Summary, summarise
from lotus.reporters import covering, mapping, ranks, reasons, short
from lotus.reporters.console import (
    LEFT,
    RIGHT,
    print_paragraph,
    print_table,
    rows_of,
    tight,
    tight_size,
)
from lotus.reporters.words import amount, duration, plain, plural, share, shorten

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

_MOST_OPERATIONS, _MOST_WORKERS, _MOST_CAUSES, _MOST_LOADERS, _NOTABLE = 25, 16, 5, 4, 1.5
_COLOURS = {"consumer-bound": "green", "unknown": "yellow"}


def report(run: Any) -> str:
    """The report of a `Run`, without colour, 80 columns wide."""
    file = io.StringIO()
    write(summarise(run), file)
    return file.getvalue()


def short_report(run: Any) -> str:
    """What is left of it at the end of `lotus trace`: about a dozen lines."""
    return "\n".join(short.short_report(run))


def write(
    summary: Summary,
    file: IO[str],
    loader: int | None = None,
    measured: MapSummary | None = None,
) -> None:
    """Print the report; in full for `loader`, by default the one with the most samples.

    `measured`: the counters and functions of the run, where there are any.
    """
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False)
    for line in covering.heading(summary):
        console.print(line, style="dim", soft_wrap=True)
    for line in covering.open_waits(summary):
        console.print()
        print_paragraph(console, "", line)
    if not summary.loaders:
        console.print("\nNo DataLoader was iterated in what was recorded.", style="bold")
    chosen = summary.loaders[0].scope.loader if summary.loaders and loader is None else loader
    ordered = sorted(summary.loaders, key=lambda one: one.scope.loader != chosen)
    for one in ordered[:_MOST_LOADERS]:
        _loader(console, one, summary, in_full=one.scope.loader == chosen)
    more = len(ordered[_MOST_LOADERS:]) + summary.loaders_left_out
    if more:
        console.print(f"\n{plural(more, 'smaller loader')} more: see --json", style="dim")
    if summary.ranks is not None:
        ranks.write(console, summary.ranks)
    if measured is not None:
        mapping.write_part(console, measured)
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
    print_paragraph(console, "", judged.summary)
    if judged.causes:
        first = judged.causes[0]
        print_paragraph(
            console, "First cause", f"{plain(first.title)}, {share(first.share)} of the loop."
        )
        reason = reasons.reason(first)
        if reason:
            print_paragraph(console, "Reason", reason)
        if in_full:
            print_paragraph(console, "Next step", plain(first.advice))
    console.print()
    for line in covering.loader_lines(one):
        print_paragraph(console, "", line)
    shares = (
        ("waiting", judged.input_share),
        ("step", judged.step_share),
        ("start-up", judged.startup_share),
        ("shut-down", judged.shutdown_share),
    )
    per_rank = times["loop_ns"] / max(len(one.scope.ranks), 1)
    text = ", ".join(f"{name} {share(value)}" for name, value in shares)
    of_rank = " per rank" if len(one.scope.ranks) > 1 else ""
    print_paragraph(console, "Loop", f"{duration(per_rank)}{of_rank}: {text}")
    print_paragraph(
        console,
        "Throughput",
        f"{amount(times['samples_per_s'])} samples/s "
        f"({plural(times['samples'], 'sample')} in {plural(times['batches'], 'batch')})",
    )
    print_paragraph(
        console,
        "Start-up",
        f"{duration(times['startup_mean_ns'])} from iter() to the first batch, "
        f"shut-down {duration(times['shutdown_mean_ns'])}"
        + (f" (means of {plural(times['epochs'], 'epoch')})" if times["epochs"] > 1 else ""),
    )
    if one.order["batches"]:
        out = one.order["out_of_order_share"]
        early, late = one.order["early_share"], one.order["late_share"]
        print_paragraph(
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
        columns = [("of loop", RIGHT), ("of waits", RIGHT), ("", LEFT)]
        print_table(console, "What the loop's time is owed to", columns, rows)
        second = covering.second_cause(one.verdict)
        if second is not None:
            print_paragraph(console, "Then", f"for {plain(second.title)}: {plain(second.advice)}")


def _operations(console: "Console", one: LoaderSummary) -> None:
    table = one.operations
    waits = bool(table["waiting_share"].notna().any())
    rows = []
    for row in rows_of(table.head(_MOST_OPERATIONS)):
        name = ("  " if row["nested"] else "") + shorten(plain(row["operation"]), 40)
        times = [tight(row[f"{key}_ns"]) for key in ("mean", "p50", "p95", "p99", "std")]
        extra = [share(row["waiting_share"])] if waits else []
        rows.append([name, amount(row["count"]), *times, share(row["workers_share"]), *extra])
    empty = [""] * 6
    for row in rows_of(one.other_time):
        if row["total_ns"] > 0:
            label = f"({row['part']})"
            rows.append([label, *empty, share(row["workers_share"]), *([""] if waits else [])])
    who = "the workers'" if one.scope.num_workers else "fetching"
    columns = [("", LEFT), *((name, RIGHT) for name in ("count", "mean", "p50", "p95", "p99"))]
    columns += [("std", RIGHT), ("share", RIGHT), *([("off CPU", RIGHT)] if waits else [])]
    print_table(console, f"Operations (share: of {who} time)", columns, rows)
    if len(table) > _MOST_OPERATIONS:
        console.print(f"  and {len(table) - _MOST_OPERATIONS} more: see --json", style="dim")


def _batches(console: "Console", one: LoaderSummary, threshold_ns: float) -> None:
    over = f"> {duration(threshold_ns)}"
    rows = [
        [row["measure"], *(tight(row[f"{key}_ns"]) for key in _SPREAD), share(row["over_share"])]
        for row in rows_of(one.batches)
    ]
    columns = [("", LEFT), *((name, RIGHT) for name in (*_SPREAD, over))]
    print_table(console, "Per batch (delay: ready, but not yet taken)", columns, rows)


_SPREAD = ("mean", "p50", "p95", "p99", "max")


def _workers(console: "Console", one: LoaderSummary) -> None:
    table, several = one.workers, len(one.scope.ranks) > 1
    memory = bool(table["pss_bytes"].notna().any())
    slow_first = table.sort_values("times", ascending=False, na_position="last", kind="stable")
    shown = table if len(table) <= _MOST_WORKERS else slow_first.head(_MOST_WORKERS)
    rows = []
    for row in rows_of(shown):
        name = "main" if row["worker"] < 0 else str(row["worker"])
        cells = [f"{row['rank']}/{name}" if several else name, amount(row["samples"])]
        cells += [tight(row["batch_mean_ns"])]
        cells += [tight(row["sample_ns"]), share(row["idle_share"]), share(row["cpu_share"])]
        cells += [tight(row["startup_ns"])]
        if memory:
            cells += [tight_size(row["pss_bytes"]), tight_size(row["pss_growth_bytes"])]
        rows.append(cells)
    names = ["samples", "fetch", "a sample", "idle", "on CPU", "start-up"]
    names += ["memory", "grew"] if memory else []
    columns = [("rank/worker" if several else "worker", LEFT), *((name, RIGHT) for name in names)]
    print_table(console, "Workers (a sample: its typical share of a batch)", columns, rows)
    if len(table) > len(shown):
        more = len(table) - len(shown)
        console.print(f"  the slowest first; {more} more: see --json", style="dim")


def _ranks(console: "Console", one: LoaderSummary) -> None:
    if len(one.ranks) < 2:
        return
    rows = [
        [str(row["rank"]), tight(row["loop_ns"]), share(row["wait_share"]),
         share(row["step_share"]), amount(row["samples_per_s"])]
        for row in rows_of(one.ranks.sort_values("wait_share", ascending=False).head(_MOST_WORKERS))
    ]  # fmt: skip
    names = ("loop", "blocked", "step", "samples/s")
    columns = [("rank", LEFT), *((name, RIGHT) for name in names)]
    print_table(console, "Ranks (most blocked first)", columns, rows)


def _slowest(console: "Console", one: LoaderSummary) -> None:
    rows = []
    # Of samples that are all alike, three say as much as ten.
    table = one.slowest
    for row in rows_of(table[(table["times"] >= _NOTABLE) | (table.index < 3)]):
        index = "-" if row["sample"] == -1 else str(row["sample"])
        operation = shorten(plain(row["operation"]), 24)
        cells = [index, tight(row["duration_ns"]), f"{row['times']:.1f}x"]
        cells += [operation, f"{row['epoch']}/{row['batch']}", plain(row["path"])]
        rows.append(cells)
    paths = any(row[-1] for row in rows)
    columns = [("index", RIGHT), ("took", RIGHT), ("median", RIGHT), ("mostly", LEFT)]
    columns += [("epoch/batch", RIGHT), ("path", LEFT)]
    print_table(
        console,
        "Slowest samples",
        columns if paths else columns[:-1],
        rows if paths else [row[:-1] for row in rows],
    )


def _books(console: "Console", one: LoaderSummary) -> None:
    rows = [
        [row["whole"], *(tight(row[f"{key}_ns"]) for key in ("total", "parts", "own")),
         tight(row["remainder_ns"]), share(row["remainder_share"])]
        for row in rows_of(one.books)
    ]  # fmt: skip
    names = ("total", "parts", "itself", "remainder", "")
    columns = [("", LEFT), *((name, RIGHT) for name in names)]
    print_table(console, "Books (fetch = samples + collate + itself)", columns, rows)


def _footer(console: "Console", summary: Summary) -> None:
    lines = [*covering.unseen(summary), *covering.losses(summary)]
    if lines:
        console.print("\nLost or not seen", style="bold")
        for line in lines:
            print_paragraph(console, "", line)
    following = covering.next_command(summary)
    if following:
        console.print(f"\nnext: {following}", soft_wrap=True)
