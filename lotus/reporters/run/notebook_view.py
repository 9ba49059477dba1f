"""A run as displayed by a notebook: the verdict, why, what to do next, and a small table."""

import html
import re
import shlex
from collections.abc import Iterable
from typing import Any

from lotus.analysis.summary import LoaderSummary, Summary
from lotus.analysis.verdict.rest_of_causes import RestOfCauses, rest_of
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.common.text.formatting import amount, duration, plain, share, shorten
from lotus.reporters.run import cached_results
from lotus.reporters.run.parts import coverage, trial

_MOST_CAUSES, _MOST_LINES, _WIDTH = 5, 3, 300
_CELL = re.compile(r"\b\d{5,}\.py:(\d+)")  # ipykernel names a cell's file by a hash of its text


def run_html(run: Any) -> str:
    """Return the HTML; no script, inline style only, all text escaped."""
    summary = cached_results.summary(run)
    lines = [_paragraph(line) for line in coverage.heading_lines(summary)]
    if not summary.loaders:
        lines.insert(0, _paragraph(coverage.no_loader(summary), "strong"))
    else:
        judged = summary.verdict or summary.loaders[0].verdict
        lines = [*_verdict(summary, summary.loaders[0], judged), *lines]
    omitted = len(summary.loaders) + summary.loaders_left_out - 1
    if omitted > 0:
        lines.append(_paragraph(f"{amount(omitted)} smaller loaders are in lotus report."))
    missing = [*coverage.unseen(summary), *coverage.losses(summary)]
    lines += [_paragraph(line) for line in missing[:_MOST_LINES]]
    if len(missing) > _MOST_LINES:
        lines.append(_paragraph(f"and {len(missing) - _MOST_LINES} more losses or notes"))
    lines.append(_paragraph(f"All of it: lotus report {shlex.quote(str(run.path))}"))
    return f"<div>{''.join(lines)}</div>"


def _verdict(summary: Summary, loader: LoaderSummary, judged: Verdict) -> Iterable[str]:
    times = loader.times
    yield _paragraph(f"{coverage.verdict_words(judged)}: {judged.summary}", "strong")
    for line in (judged.doubt, *judged.flaws):
        if line:
            yield _paragraph(line)
    if judged.causes:
        first = judged.causes[0]
        text = f"First cause: {first.title}, {coverage.share_words(first, judged)}."
        text += f" {coverage.rival_words(judged)}" if judged.as_large else ""
        yield _paragraph(f"{text} {first.reason}")
        gain = trial.expected_in_run(first.remedy, loader, summary)
        yield _paragraph(f"Next step: {first.advice}" + (f" Expected: {gain}." if gain else ""))
        yield _causes(loader)
    for line in coverage.loader_lines(loader):
        yield _paragraph(line)
    if judged.kind == "unknown":
        return
    ranks = max(len(loader.scope.ranks), 1)
    yield _paragraph(
        f"{coverage.rate(loader)}, {duration(times['loop_ns'] / ranks)} of "
        f"loop{' per rank' if ranks > 1 else ''}, {duration(times['startup_mean_ns'])} from "
        "iter() to the first batch."
    )


def _causes(loader: LoaderSummary) -> str:
    causes = loader.verdict.largest_causes(_MOST_CAUSES)
    rest = rest_of(causes)
    listed: list[Cause | RestOfCauses] = [*causes, *([rest] if rest else [])]
    rows = "".join(
        f"<tr><td style='text-align:left'>{_escape(row.title)}</td><td>{share(row.share)}</td>"
        f"<td>{duration(row.ns)}</td></tr>"
        for row in listed
    )
    head = "<tr><th style='text-align:left'>cause</th><th>of the loop</th><th>time</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _paragraph(text: str, tag: str = "") -> str:
    inner = _escape(_CELL.sub(r"line \1 of a cell", text.strip()))
    inner = f"<{tag}>{inner}</{tag}>" if tag else inner
    return f"<p style='margin:0.3em 0'>{inner}</p>"


def _escape(text: str) -> str:
    # Notebooks typeset text between dollars.
    return html.escape(shorten(plain(text), _WIDTH)).replace("$", "<span>$</span>")
