"""The report on a terminal; 80 columns are enough. Colour only if the output is a terminal."""

import io
from typing import TYPE_CHECKING, Any

from lotus.analysis.counters.function_profile import MapSummary
from lotus.analysis.machine.memory_readings import NOT_ALIKE, READ_ONCE
from lotus.analysis.observations.blocked_time import not_known, noticeable
from lotus.analysis.samples.slow_batches import SLOW_TIMES
from lotus.analysis.summary import LoaderSummary, Summary, summarise
from lotus.analysis.verdict.verdict import Verdict
from lotus.common.text.formatting import duration, plain, plural, share
from lotus.reporters.base.console import LEFT, plain_console, print_paragraph, print_table, rows_of
from lotus.reporters.base.display_names import tree
from lotus.reporters.map import map_report
from lotus.reporters.ranks import rank_report
from lotus.reporters.run.parts import (
    blocked_words,
    coverage,
    next_steps,
    report_columns,
    time_bars,
    trial,
    verdict_paragraphs,
)
from lotus.reporters.run.parts.machine_words import machine_words

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

_MOST_OPERATIONS, _MOST_WORKERS, _MOST_CAUSES, _MOST_LOADERS, _MOST_BLOCKED = 25, 16, 5, 4, 8


def report(run: Any) -> str:
    """Return the report of a `Run` without colour, 80 columns wide."""
    file = io.StringIO()
    write(plain_console(file), summarise(run))
    return file.getvalue()


def write(
    console: "Console",
    summary: Summary,
    *,
    loader: int | None = None,
    measured: MapSummary | None = None,
) -> None:
    """Print the report; in full for `loader`, by default the one with the most samples.

    `measured`: the counters and functions of the run, if any.
    """
    for line in coverage.heading_lines(summary):
        console.print(line, style="dim", soft_wrap=True)
    for line in coverage.open_waits(summary):
        console.print()
        print_paragraph(console, "", line)
    if not summary.loaders:
        console.print()
        print_paragraph(console, "", coverage.no_loader(summary))
    chosen = summary.loaders[0].scope.loader if summary.loaders and loader is None else loader
    ordered = sorted(summary.loaders, key=lambda each: each.scope.loader != chosen)
    for each in ordered[:_MOST_LOADERS]:
        _loader(console, each, summary, in_full=each.scope.loader == chosen)
    omitted = len(ordered[_MOST_LOADERS:]) + summary.loaders_left_out
    if omitted:
        console.print(f"\nand {plural(omitted, 'smaller loader')}: see --json", style="dim")
    if summary.ranks is not None:
        rank_report.write(console, summary.ranks)
    if measured is not None:
        map_report.write_part(console, measured)
    _footer(console, summary)


def _loader(console: "Console", loader: LoaderSummary, summary: Summary, in_full: bool) -> None:
    console.print()
    first = summary.loaders[0] is loader and summary.verdict is not None
    judged = summary.verdict if first and summary.verdict is not None else loader.verdict
    _verdict(console, summary, loader, judged, in_full)
    if in_full and first:
        console.print()
        for line in time_bars.lines(summary):
            console.print(line, soft_wrap=True)
    if not loader.coverage["batches_taken"] and not loader.coverage["batches_made"]:
        return
    if in_full:
        _causes(console, loader)
        _operations(console, loader)
        _blocked(console, loader)
        _batches(console, loader, summary.threshold_ns)
        _workers(console, loader)
        _ranks(console, loader)
        _slowest(console, loader)
        _books(console, loader)
    else:
        number = loader.scope.loader
        console.print(f"  Full report: lotus report --loader {number} ...", style="dim")


def _verdict(
    console: "Console", summary: Summary, loader: LoaderSummary, judged: Verdict, in_full: bool
) -> None:
    times, expected = loader.times, ""
    has_advice = in_full and bool(judged.causes)
    if has_advice:
        expected = trial.expected_in_run(judged.causes[0].remedy, loader, summary)
    verdict_paragraphs.write(
        console,
        judged,
        headline=coverage.verdict_words(judged),
        rival=coverage.rival_words(judged),
        has_advice=has_advice,
        expected=expected,
        ruled_out=judged.ruled_out if has_advice else (),
    )
    console.print()
    for line in coverage.loader_lines(loader):
        print_paragraph(console, "", line)
    shares = (
        ("waiting", judged.input_share),
        ("step", judged.step_share),
        ("start-up", judged.startup_share),
        ("shut-down", judged.shutdown_share),
    )
    per_rank = times["loop_ns"] / max(len(loader.scope.ranks), 1)
    text = ", ".join(f"{name} {share(value)}" for name, value in shares)
    of_rank = " per rank" if len(loader.scope.ranks) > 1 else ""
    if loader.held_up is not None:
        of_rank = f" of rank {loader.held_up.rank}"
        rows = loader.ranks
        per_rank = float(rows.loc[rows["rank"] == loader.held_up.rank, "loop_ns"].iloc[0])
    print_paragraph(console, "Loop", f"{duration(per_rank)}{of_rank}: {text}")
    samples, batches = plural(times["samples"], loader.counted), plural(times["batches"], "batch")
    print_paragraph(console, "Throughput", f"{coverage.rate(loader)} ({samples} in {batches})")
    if ceilings := coverage.ceilings(loader):
        print_paragraph(console, "", f"{ceilings}.")
    print_paragraph(
        console,
        "First batch",
        f"{duration(times['startup_mean_ns'])} after the beginning of iter(), "
        f"shut-down {duration(times['shutdown_mean_ns'])}"
        + (f" (means of {plural(times['epochs'], 'epoch')})" if times["epochs"] > 1 else ""),
    )
    if machine := machine_words(loader.machine):
        print_paragraph(console, "Machine", machine)
    if loader.order["batches"]:
        out = loader.order["out_of_order_share"]
        late = loader.order["late_share"]
        print_paragraph(
            console,
            "Order",
            f"{share(out)} of the batches arrived early (out of order), {share(late)} late",
        )


def _causes(console: "Console", loader: LoaderSummary) -> None:
    causes = loader.verdict.largest_causes(_MOST_CAUSES)
    if len(causes) > 1:
        table = report_columns.shown(report_columns.CAUSES, loader, report_columns.TERMINAL)
        rows = report_columns.cause_rows(table, causes)
        print_table(console, coverage.causes_title(loader.verdict), table.headings, rows)
        for number, words in next_steps.later_steps(loader.verdict):
            print_paragraph(console, f"Step {number}", plain(words))


def _operations(console: "Console", loader: LoaderSummary) -> None:
    table = report_columns.shown(report_columns.OPERATIONS, loader, report_columns.TERMINAL)
    rows = []
    shown = rows_of(loader.operations.head(_MOST_OPERATIONS))
    names, nested = ([row[key] for row in shown] for key in ("operation", "nested"))
    for line in tree([str(name) for name in names], nested):
        row = {} if line.row is None else shown[line.row]
        rows.append([line.name, *table.cells(row)])
    for row in rows_of(loader.other_time):
        if row["total_ns"] > 0:
            rows.append([f"({row['part']})", *table.cells(row)])
    who = "the workers'" if loader.scope.num_workers else "fetching"
    headings = [("", LEFT), *table.headings]
    # With all columns, there would be no room for names.
    words = report_columns.core_words(loader)
    spare = ("std", "p99") if words else ()
    title = f"Operations (share: of {who} time)"
    print_table(console, title, headings, rows, names_in=(0,), spare=spare)
    omitted = len(loader.operations) - _MOST_OPERATIONS
    if omitted > 0:
        console.print(f"  and {omitted} more: see --json", style="dim")
    if words:
        print_paragraph(console, "", words)


def _blocked(console: "Console", loader: LoaderSummary) -> None:
    rows = noticeable(loader.blocked)
    table = report_columns.shown(report_columns.BLOCKED, loader, report_columns.TERMINAL)
    shown = table.rows(rows_of(rows.head(_MOST_BLOCKED)))
    title = "Blocked (share of the looks at it; time: of all threads together)"
    print_table(console, title, table.headings, shown, names_in=(0,))
    if omitted := len(rows) - len(shown):
        console.print(f"  and {omitted} more: see --json", style="dim")
    for line in blocked_words.places(rows.head(_MOST_BLOCKED)):
        console.print(f"  {line}", soft_wrap=True)  # paths are not broken: users copy them
    lines = [*blocked_words.not_known(not_known(loader.blocked))]
    lines += blocked_words.contradictions(rows)
    if lines and not shown:
        console.print("\nBlocked", style="bold")
    for line in lines:
        print_paragraph(console, "", line)


def _batches(console: "Console", loader: LoaderSummary, threshold_ns: float) -> None:
    table = report_columns.shown(
        report_columns.batches(threshold_ns), loader, report_columns.TERMINAL
    )
    rows = table.rows(rows_of(loader.batches))
    print_table(console, "Per batch (delay: ready, but not yet taken)", table.headings, rows)


def _workers(console: "Console", loader: LoaderSummary) -> None:
    workers = loader.workers
    slow_first = workers.sort_values("times", ascending=False, na_position="last", kind="stable")
    shown = workers if len(workers) <= _MOST_WORKERS else slow_first.head(_MOST_WORKERS)
    table = report_columns.shown(report_columns.WORKERS, loader, report_columns.TERMINAL)
    rows = table.rows(rows_of(shown))
    title = "Workers (a sample: its typical share of a batch)"
    spare = ("grew", "memory", "start-up", "no core")
    print_table(console, title, table.headings, rows, spare=spare)
    if len(workers) > len(shown):
        omitted = len(workers) - len(shown)
        console.print(f"  the slowest first; {omitted} more: see --json", style="dim")
    reasons = {
        READ_ONCE: "the memory of that worker was read only once",
        NOT_ALIKE: "no two readings of the memory of that worker can be compared",
    }
    known = [words for reason, words in reasons.items() if (shown["growth_reason"] == reason).any()]
    if shown["pss_bytes"].notna().any() and known:
        print_paragraph(console, "", f"grew -: not known, because {', or '.join(known)}.")


def _ranks(console: "Console", loader: LoaderSummary) -> None:
    if len(loader.ranks) < 2:
        return
    table = report_columns.shown(report_columns.RANKS, loader, report_columns.TERMINAL)
    blocked_first = loader.ranks.sort_values("wait_share", ascending=False).head(_MOST_WORKERS)
    rows = table.rows(rows_of(blocked_first))
    print_table(console, "Ranks (most blocked first)", table.headings, rows)
    if omitted := len(loader.ranks) - len(rows):
        console.print(f"  and {omitted} more: see --json", style="dim")


def _slowest(console: "Console", loader: LoaderSummary) -> None:
    # If samples are all alike, three tell as much as ten.
    slowest = loader.slowest[(loader.slowest["beyond"] >= SLOW_TIMES) | (loader.slowest.index < 3)]
    table = report_columns.shown(report_columns.SLOWEST_SAMPLES, loader, report_columns.TERMINAL)
    rows = table.rows(rows_of(slowest))
    print_table(console, "Slowest samples", table.headings, rows, names_in=(3,))
    table = report_columns.shown(report_columns.SLOW_BATCHES, loader, report_columns.TERMINAL)
    rows = table.rows(rows_of(loader.slow_batches))
    print_table(console, "Batches that were slow as a whole", table.headings, rows)
    if rows:
        print_paragraph(console, "", report_columns.SLOW_BATCHES_NOTE)


def _books(console: "Console", loader: LoaderSummary) -> None:
    table = report_columns.shown(report_columns.BOOKS, loader, report_columns.TERMINAL)
    rows = table.rows(rows_of(loader.books))
    print_table(console, "Sums (fetch = samples + collate + itself)", table.headings, rows)


def _footer(console: "Console", summary: Summary) -> None:
    lines = [*coverage.unseen(summary), *coverage.losses(summary)]
    if lines:
        console.print("\nLost or not seen", style="bold")
        for line in lines:
            print_paragraph(console, "", line)
    following = trial.trial_command(summary)
    console.print("\nterms: `lotus schema report` describes each number and its unit", style="dim")
    if following:
        console.print(f"next: {following}", soft_wrap=True)
    if others := trial.alternatives_command(summary):
        console.print(f"other implementations of the first cause: {others}", soft_wrap=True)
