"""The page of a program observed from outside."""

from lotus.analysis.attached.verdict.sampled_verdict import AttachedSummary, LoopSummary
from lotus.common.text.formatting import plain, share
from lotus.reporters.base.console import LEFT, RIGHT, rows_of
from lotus.reporters.base.labelled_text import LabelledText
from lotus.reporters.base.page import Chart, Section, Table
from lotus.reporters.run.attached import attached_counters, attached_functions, attached_report
from lotus.reporters.run.charts import loader_charts
from lotus.reporters.run.parts import coverage

Parts = list[str | Table | Chart]


def heading(summary: AttachedSummary) -> Section:
    """Return the verdict and the text below it."""
    judged = summary.verdict
    lines: Parts = list(attached_report.heading_lines(summary))
    if judged is None:
        return Section("No verdict (sampled)", [plain(summary.no_verdict), *lines])
    parts: Parts = [judged.summary, *([judged.doubt] if judged.doubt else []), *judged.flaws]
    if judged.causes:
        first = judged.causes[0]
        text = f"{first.title}, {coverage.share_words(first, judged)}. {first.reason}".strip()
        parts += [LabelledText("First cause", text), LabelledText("Next step", first.advice)]
    if judged.ruled_out:
        parts.append(LabelledText("Ruled out", f"{', '.join(judged.ruled_out)}."))
    wall = attached_report.time_parts(summary)
    if wall:
        parts.append(loader_charts.run_time(wall))
    return Section(attached_report.verdict_words(judged), [*parts, *lines])


def sections(summary: AttachedSummary) -> list[Section]:
    """Return loops, processes, and what was not seen."""
    result = [_loop(loop) for loop in summary.loops]
    result.append(Section("Processes", [Table(*attached_report.process_cells(summary))]))
    if summary.counters is not None:
        parts: Parts = []
        for title, cells in attached_counters.tables(summary.counters):
            parts += [title, Table(*cells)]
        parts += attached_counters.lines(summary.counters)
        result.append(Section("Counters", parts))
    if summary.functions is not None:
        functions = summary.functions
        tables: Parts = [
            Table(*attached_functions.operation_cells(functions)),
            attached_functions.PROCESSES_TITLE,
            Table(*attached_functions.process_cells(functions)),
            *attached_functions.lines(functions),
        ]
        result.append(Section(attached_functions.TITLE, tables))
    words: Parts = [*summary.evidence.missing, *summary.remarks, attached_report.EXACT]
    result.append(Section("What was not seen", words))
    return result


def _loop(loop: LoopSummary) -> Section:
    causes = [
        [cause.title, share(cause.share), coverage.interval(cause)] for cause in loop.verdict.causes
    ]
    columns = [("cause", LEFT), ("of loop", RIGHT), ("95 % interval", RIGHT)]
    parts: Parts = [attached_report.worker_words(loop)] if loop.workers else []
    if loader := attached_report.loader_words(loop.settings):
        parts.append(f"Loader: {loader}")
    parts += [Table(columns, causes), Table(*attached_report.operation_cells(loop))]
    if loop.places is not None:
        parts.append(Table(*attached_report.place_cells(loop.places)))
    if len(loop.rank_rows) > 1:
        rows = [
            [
                f"{row['rank']:.0f}",
                *(share(row[name]) for name in ("wait_share", "step_share", "step_blocked_share")),
            ]
            for row in rows_of(loop.rank_rows)
        ]
        headings = [(name, RIGHT) for name in ("rank", "waits", "step", "step blocked")]
        parts.append(Table(headings, rows))
    return Section(plain(loop.title)[:1].upper() + plain(loop.title)[1:], parts)
