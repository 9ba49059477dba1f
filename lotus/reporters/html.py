"""The report as one HTML page: what the terminal says, to look at."""

from pathlib import Path

import numpy as np
import pandas as pd

from lotus.analysis import distributions, series
from lotus.analysis.functions import MapSummary
from lotus.analysis.lanes import lanes
from lotus.analysis.summary import LoaderSummary, Summary
from lotus.reporters import (
    charts,
    covering,
    map_charts,
    mapping,
    page,
    rank_charts,
    reasons,
    tables,
    time_charts,
)
from lotus.reporters.console import LEFT, RIGHT, rows_of, tight
from lotus.reporters.page import Chart, Section, Table
from lotus.reporters.words import amount, brief_command, duration, plain, share
from lotus.run import Run

_MOST_RANKS = 8  # as many as there are colours
_CELLS = 400_000  # of the timeline: 1 MB of the page


def write(
    run: Run, summary: Summary, path: Path, measured: MapSummary | None, loader: int | None = None
) -> None:
    """Write the page of a run; in full for `loader`, by default the one of most samples.

    Raises LotusError where the file cannot be written.
    """
    heading, sections = contents(run, summary, measured, loader)
    words = summary.manifest.get("command") or []
    title = f"lotus: {brief_command(words, 60) if words else summary.path}"
    page.write(path, title, heading, sections, tables.document(summary, measured))


def contents(
    run: Run, summary: Summary, measured: MapSummary | None, loader: int | None = None
) -> tuple[Section, list[Section]]:
    """The heading and the sections of the page."""
    stopped = list(covering.open_waits(summary))
    lines: list[str | Table | Chart] = list(covering.heading(summary))
    chosen = next((one for one in summary.loaders if one.scope.loader == loader), None)
    if chosen is None and summary.loaders:
        chosen = summary.loaders[0]
    if chosen is None:
        heading = Section("No DataLoader was iterated in what was recorded", [*stopped, *lines])
        return heading, [_footer(summary)]
    following = covering.next_command(summary)
    if following:
        lines.append(f"next: {following}")
    heading = Section(covering.verdict_words(chosen.verdict), [*stopped, *_verdict(chosen), *lines])
    sections = []
    if chosen.coverage["batches_taken"] or chosen.coverage["batches_made"]:
        sections += _loader(run, summary, chosen)
    if summary.ranks is not None:
        sections.append(rank_charts.section(summary.ranks))
    if measured is not None:
        sections.append(_silicon(measured))
    if len(summary.loaders) > 1:
        sections.append(_others(summary, chosen))
    sections.append(_footer(summary))
    return heading, [one for one in sections if one.parts]


def _verdict(one: LoaderSummary) -> list[str | Table | Chart]:
    judged, times = one.verdict, one.times
    parts: list[str | Table | Chart] = [judged.summary]
    if judged.causes:
        first = judged.causes[0]
        text = f"First cause: {first.title}, {share(first.share)} of the loop."
        reason = reasons.reason(first)
        parts.append(f"{text} {reason}" if reason else text)
        parts.append(f"Next step: {first.advice}")
        second = covering.second_cause(judged)
        if second is not None:
            parts.append(f"Then, for {second.title}: {second.advice}")
    parts += list(covering.loader_lines(one))
    parts.append(
        f"{amount(times['samples_per_s'])} samples/s, "
        f"{duration(times['loop_ns'] / max(len(one.scope.ranks), 1))} of loop"
        f"{' per rank' if len(one.scope.ranks) > 1 else ''}, "
        f"{duration(times['startup_mean_ns'])} from iter() to the first batch."
    )
    if judged.causes:
        parts.append(charts.causes(one))
    return parts


def _loader(run: Run, summary: Summary, one: LoaderSummary) -> list[Section]:
    table = series.batch_series(one.scope)
    over_time: list[str | Table | Chart] = []
    ranks = table.groupby("rank")["wait_ns"].sum().sort_values(ascending=False, kind="stable")
    if len(ranks) > _MOST_RANKS:
        over_time.append(
            f"Batches and throughput are those of the {_MOST_RANKS} ranks, of {len(ranks)}, that "
            "waited most."
        )
        table = table[table["rank"].isin(ranks.index[:_MOST_RANKS])]
    if len(table):
        over_time.append(time_charts.batches(one, series.thinned(table)))
    rates = series.throughput(table)
    if len(rates):
        over_time.append(time_charts.throughput(rates))
    count = len(one.workers) + 1
    bins = int(np.clip(_CELLS / (count * time_charts.lane_rows(count)), 400, 2000))
    made = lanes(run.intervals, run.workers, pd.DataFrame(run.manifest["ranks"]), bins)
    if len(made.lanes):
        over_time.append(time_charts.timeline(made))
    inside: list[str | Table | Chart] = []
    if one.other_time["total_ns"].gt(0).any() or len(one.operations):
        inside.append(charts.shares(one))
    quantiles = distributions.quantiles(one.scope)
    if len(quantiles):
        inside.append(charts.operations(quantiles))
    balance: list[str | Table | Chart] = []
    if len(one.workers):
        balance.append(charts.workers(one))
    if len(one.ranks) > 1:
        balance.append(charts.ranks(one))
    memory = series.memory(one.scope)
    if memory.duplicated(["rank", "worker", "pid"]).any():  # more than one reading of one
        balance.append(time_charts.memory(memory))
    return [
        Section("Over time", over_time),
        Section("Operations", inside),
        Section("Slowest samples", _slowest(one)),
        Section("Workers and ranks", balance),
    ]


def _slowest(one: LoaderSummary) -> list[str | Table | Chart]:
    if not len(one.slowest):
        return []
    columns = [("index", RIGHT), ("took", RIGHT), ("times the median", RIGHT), ("mostly", LEFT)]
    columns += [("epoch/batch", RIGHT), ("path", LEFT)]
    rows = [
        [
            "-" if row["sample"] == -1 else str(row["sample"]),
            tight(row["duration_ns"]),
            f"{row['times']:.1f}",
            str(row["operation"]),
            f"{row['epoch']}/{row['batch']}",
            str(row["path"] or ""),
        ]
        for row in rows_of(one.slowest)
    ]
    if not any(row[-1] for row in rows):  # of a data set whose samples are not files
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return [Table(columns, rows)]


def _silicon(measured: MapSummary) -> Section:
    made = (
        map_charts.top_down(measured),
        map_charts.metrics(measured),
        map_charts.functions(measured),
    )
    parts: list[str | Table | Chart] = [one for one in made if one is not None]
    if made[0] is None:
        parts.insert(
            0,
            "Front-end and back-end bound were not counted: this CPU, or this virtual machine, "
            "gives no such counters; `lotus doctor` says why.",
        )
    notes = mapping.worth(measured)
    parts += [plain(note) for note in notes]
    if more := len(measured.notes) - len(notes):
        parts.append(f"and {more} remarks more: see --json")
    return Section("Down to the silicon", parts)


def _others(summary: Summary, chosen: LoaderSummary) -> Section:
    columns = [("loader", LEFT), ("", LEFT), ("samples", RIGHT), ("loop", RIGHT)]
    columns += [("waiting", RIGHT), ("verdict", LEFT)]
    rows = [
        [
            str(one.scope.loader),
            one.scope.title,
            amount(one.times["samples"]),
            duration(one.times["loop_ns"]),
            share(one.verdict.input_share),
            one.verdict.kind,
        ]
        for one in summary.loaders
        if one is not chosen
    ]
    parts: list[str | Table | Chart] = [Table(columns, rows)]
    if summary.loaders_left_out:
        parts.append(f"{summary.loaders_left_out} smaller loaders are left out: see --json.")
    parts.append("One of them in full: lotus report --loader N --html FILE RUN")
    return Section("Other loaders", parts)


def _footer(summary: Summary) -> Section:
    lines: list[str | Table | Chart] = [*covering.unseen(summary), *covering.losses(summary)]
    host = summary.manifest.get("host")
    where = f"Recorded on {plain(host)} by lotus" if host else "Recorded by lotus"
    version = summary.manifest.get("lotus")
    lines = lines or ["Nothing was lost, and nothing was met that could not be looked into."]
    return Section(
        "Lost or not measured", [*lines, f"{where} {plain(version or '')}".strip() + "."]
    )
