"""The report as one HTML page, with charts."""

from pathlib import Path

import numpy as np
import pandas as pd

from lotus.analysis.common.remade_loaders import merged
from lotus.analysis.common.scope import table as table_of
from lotus.analysis.counters.function_profile import MapSummary
from lotus.analysis.observations.blocked_time import not_known
from lotus.analysis.samples import distributions
from lotus.analysis.summary import LoaderSummary, Summary
from lotus.analysis.timelines import time_series
from lotus.analysis.timelines.lanes import lanes
from lotus.analysis.verdict.verdict import Verdict
from lotus.common.text.formatting import amount, brief_command, duration, plain, plural, share
from lotus.reading.run import Run
from lotus.reporters.base import page
from lotus.reporters.base.console import LEFT, RIGHT, rows_of
from lotus.reporters.base.labelled_text import LabelledText
from lotus.reporters.base.page import Chart, Details, Section, Table
from lotus.reporters.map import map_charts, map_report
from lotus.reporters.ranks import rank_charts
from lotus.reporters.run import run_document
from lotus.reporters.run.charts import loader_charts, time_charts
from lotus.reporters.run.parts import (
    blocked_words,
    coverage,
    next_steps,
    report_columns,
    time_bars,
    trial,
)
from lotus.reporters.run.parts.machine_words import machine_words

_MOST_RANKS = 8  # as many as there are colours
_CELLS = 400_000  # of the timeline: 1 MB of the page


def save(
    run: Run, summary: Summary, path: Path, measured: MapSummary | None, loader: int | None = None
) -> None:
    """Write the page of a run; in full for `loader`, by default the one with most samples.

    Raises LotusError if the file cannot be written.
    """
    heading, sections = contents(run, summary, measured, loader)
    words = summary.manifest.get("command") or []
    title = f"lotus: {brief_command(words, 60) if words else summary.path}"
    page.save(path, title, heading, sections, run_document.document(summary, measured=measured))


def contents(
    run: Run, summary: Summary, measured: MapSummary | None, loader: int | None = None
) -> tuple[Section, list[Section]]:
    """Return the heading and the sections of the page."""
    ran = [*coverage.heading_lines(summary), *coverage.open_waits(summary)]
    chosen = next((each for each in summary.loaders if each.scope.loader == loader), None)
    if chosen is None and summary.loaders:
        chosen = summary.loaders[0]
    if chosen is None:
        return Section(coverage.no_loader(summary).rstrip("."), ran), [_footer(summary)]
    judged = chosen.verdict
    if chosen is summary.loaders[0] and summary.verdict is not None:
        judged = summary.verdict
    parts: list[str | Table | Chart | Details] = [*ran, judged.summary]
    parts += [*([judged.doubt] if judged.doubt else []), *judged.flaws]
    if wall := list(time_bars.parts(summary)):
        parts.append(loader_charts.run_time(wall, time_bars.without_core(summary.time)))
    parts += _advice(summary, chosen, judged)
    if judged.causes:
        parts.append(loader_charts.causes(chosen))
    parts.append(Details("The loader, its rates and the machine", _circumstances(chosen, judged)))
    heading = Section(coverage.verdict_words(judged), parts)
    sections = []
    if chosen.coverage["batches_taken"] or chosen.coverage["batches_made"]:
        sections += _loader(run, summary, chosen)
    if summary.ranks is not None:
        sections += rank_charts.sections(summary.ranks)
    if measured is not None:
        sections.append(_silicon(measured))
    if len(summary.loaders) > 1:
        sections.append(_others(summary, chosen))
    sections.append(_footer(summary))
    return heading, [each for each in sections if each.parts]


def _advice(summary: Summary, loader: LoaderSummary, judged: Verdict) -> list[str]:
    """Return the first cause, what to do about it, and the next steps."""
    parts: list[str] = []
    if judged.causes:
        first = judged.causes[0]
        text = f"{first.title}, {coverage.share_words(first, judged)}."
        text += f" {coverage.rival_words(judged)}" if judged.as_large else ""
        again = first.reason in judged.flaws
        text = f"{text} {first.reason}" if first.reason and not again else text
        parts.append(LabelledText("First cause", text))
        gain = trial.expected_in_run(first.remedy, loader, summary)
        advice = first.advice + (f" Expected: {gain}." if gain else "")
        parts.append(LabelledText("Next step", advice))
        for number, words in next_steps.later_steps(judged):
            parts.append(f"Step {number}, {words}")
    if following := trial.trial_command(summary):
        parts.append(LabelledText("next", following, is_command=True))
    return parts


def _circumstances(loader: LoaderSummary, judged: Verdict) -> list[str]:
    """Return what else is known of the loader and its loops."""
    times, parts = loader.times, list(coverage.loader_lines(loader))
    parts.append(
        f"{coverage.rate(loader)}, "
        f"{duration(times['loop_ns'] / max(len(loader.scope.ranks), 1))} of loop"
        f"{' per rank' if len(loader.scope.ranks) > 1 else ''}, "
        f"{duration(times['startup_mean_ns'])} from iter() to the first batch."
    )
    if ceilings := coverage.ceilings(loader):
        parts.append(f"{ceilings}.")
    if machine := machine_words(loader.machine):
        parts.append(f"The machine: {machine}.")
    if judged.ruled_out:
        parts.append(LabelledText("Ruled out", f"{', '.join(judged.ruled_out)}."))
    return parts


def _loader(run: Run, summary: Summary, loader: LoaderSummary) -> list[Section]:
    table = time_series.batch_series(loader.scope)
    over_time: list[str | Table | Chart] = []
    ranks = table.groupby("rank")["wait_ns"].sum().sort_values(ascending=False, kind="stable")
    if len(ranks) > _MOST_RANKS:
        over_time.append(
            f"Batches and throughput are those of the {_MOST_RANKS} ranks, of {len(ranks)}, that "
            "waited most."
        )
        table = table[table["rank"].isin(ranks.index[:_MOST_RANKS])]
    if len(table):
        over_time.append(time_charts.batches(loader, time_series.thinned(table)))
    scopes = [loader.scope, *(each.scope for each in summary.loaders if each is not loader)]
    loops = time_series.loops(scopes, min(loader.scope.ranks, default=0))
    own = loops["loader"] == loader.scope.loader
    rates = time_series.throughput(table, loops=loops[own])
    if len(rates):
        over_time.append(time_charts.throughput(rates, loops[~own]))
    count = len(loader.workers) + 1
    bins = int(np.clip(_CELLS / (count * time_charts.lane_rows(count)), 400, 2000))
    lanes_table = lanes(
        run.other_intervals,
        loader.scope.calls.contents,
        table_of(merged(run), "workers"),
        pd.DataFrame(run.manifest["ranks"]),
        bins,
    )
    if len(lanes_table.lanes):
        over_time.append(time_charts.timeline(lanes_table))
    inside: list[str | Table | Chart] = []
    if loader.other_time["total_ns"].gt(0).any() or len(loader.operations):
        inside.append(loader_charts.shares(loader))
    quantiles = distributions.quantiles(loader.scope)
    if len(quantiles):
        inside.append(loader_charts.operations(quantiles))
    inside += _blocked(loader)
    balance: list[str | Table | Chart] = []
    if len(loader.workers):
        balance.append(loader_charts.workers(loader))
    if len(loader.ranks) > 1:
        balance.append(loader_charts.ranks(loader))
    memory = time_series.memory(loader.scope)
    if memory.duplicated(["rank", "worker", "pid"]).any():  # more than one reading of one
        balance.append(time_charts.memory(memory))
    return [
        Section("Over time", over_time),
        Section("Operations", inside),
        Section("Slowest samples", _slowest(loader)),
        Section("Workers and ranks", balance),
    ]


def _blocked(loader: LoaderSummary) -> list[str | Table | Chart]:
    parts: list[str | Table | Chart] = []
    if loader.blocked["ns"].notna().any():
        parts.append(loader_charts.blocked(loader))
    elif loader.blocked["share"].notna().any():
        table = report_columns.shown(report_columns.BLOCKED, loader, report_columns.PAGE)
        parts.append("Computing and blocked, by operation:")
        parts.append(Table(table.headings, table.rows(rows_of(loader.blocked))))
    parts += blocked_words.not_known(not_known(loader.blocked))
    parts += blocked_words.contradictions(loader.blocked)
    return parts


def _slowest(loader: LoaderSummary) -> list[str | Table | Chart]:
    parts: list[str | Table | Chart] = []
    if len(loader.slowest):
        table = report_columns.shown(report_columns.SLOWEST_SAMPLES, loader, report_columns.PAGE)
        parts.append(Table(table.headings, table.rows(rows_of(loader.slowest))))
    if len(loader.slow_batches):
        table = report_columns.shown(report_columns.SLOW_BATCHES, loader, report_columns.PAGE)
        parts.append("Batches that were slow as a whole:")
        parts.append(Table(table.headings, table.rows(rows_of(loader.slow_batches))))
        parts.append(report_columns.SLOW_BATCHES_NOTE)
    return parts


def _silicon(measured: MapSummary) -> Section:
    made = (
        map_charts.top_down(measured),
        map_charts.metrics(measured),
        map_charts.functions(measured),
    )
    parts: list[str | Table | Chart] = [part for part in made if part is not None]
    rows, sentences = map_report.bound_by(measured)
    place = int(made[0] is not None)
    parts[place:place] = sentences
    if rows:
        parts[place:place] = [map_report.BOUND_BY, Table(map_report.BOUND_BY_COLUMNS, rows)]
    if made[0] is None:
        parts.insert(
            0,
            "Front-end and back-end bound were not counted: this CPU, or this virtual machine, "
            "gives no such counters; `lotus doctor` says why.",
        )
    parts += map_report.few_samples(measured)
    notes = map_report.worth(measured)
    parts += [plain(note) for note in notes]
    if omitted := len(measured.notes) - len(notes):
        parts.append(f"and {omitted} remarks more: see --json")
    return Section("Down to the silicon", parts)


def _others(summary: Summary, chosen: LoaderSummary) -> Section:
    columns = [("loader", LEFT), ("", LEFT), ("samples", RIGHT), ("loop", RIGHT)]
    columns += [("waiting", RIGHT), ("verdict", LEFT)]
    rows = [
        [
            str(loader.scope.loader),
            loader.scope.title,
            amount(loader.times["samples"]),
            duration(loader.times["loop_ns"]),
            share(loader.verdict.input_share),
            coverage.verdict_words(loader.verdict).lower(),
        ]
        for loader in summary.loaders
        if loader is not chosen
    ]
    parts: list[str | Table | Chart] = [Table(columns, rows)]
    if summary.loaders_left_out:
        omitted = plural(summary.loaders_left_out, "smaller loader")
        parts.append(f"Left out here: {omitted}; see --json.")
    parts.append("One of them in full: lotus report --loader N --html FILE RUN")
    return Section("Other loaders", parts)


def _footer(summary: Summary) -> Section:
    lines: list[str | Table | Chart] = [*coverage.unseen(summary), *coverage.losses(summary)]
    host = summary.manifest.get("host")
    where = f"Recorded on {plain(host)} by lotus" if host else "Recorded by lotus"
    version = summary.manifest.get("lotus")
    lines = lines or ["Nothing was lost, and there was nothing that lotus could not look into."]
    recorded = f"{where} {plain(version or '')}".strip()
    terms = LabelledText("each number and its unit", "lotus schema report", is_command=True)
    return Section("Lost or not measured", [*lines, f"{recorded}.", terms])
