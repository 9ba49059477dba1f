"""The verdict as Markdown, for an issue or a pull request: `lotus report RUN --markdown`."""

import re
from collections.abc import Iterable, Iterator

from lotus.analysis.summary import LoaderSummary, Summary
from lotus.analysis.verdict.rest_of_causes import rest_of
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.common.text.formatting import duration, plain, share
from lotus.reporters.run.parts import coverage, time_bars, trial

_MOST_CAUSES = 5
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~]")
# A name in a run must neither mention a user nor refer to an issue.
_REFERENCES = str.maketrans({"@": "&#64;", "#": "&#35;"})


def markdown(summary: Summary) -> str:
    """Return the verdict, its causes, what to try and where the time went, with GitHub tables."""
    return "\n".join(_lines(summary)) + "\n"


def _lines(summary: Summary) -> Iterator[str]:
    if not summary.loaders:
        yield f"**{coverage.no_loader(summary)}**"
    else:
        first = summary.loaders[0]
        yield from _verdict(summary, first, summary.verdict or first.verdict)
        yield ""
        parts = list(time_bars.parts(summary))
        if parts:
            rows = ((words, duration(ns), share(part)) for words, ns, part in parts)
            yield from _table(("where the run's time went", "", ""), rows)
            yield ""
        yield from (f"- {_text(line)}" for line in _facts(summary, first))
    for line in (*coverage.open_waits(summary), *coverage.unseen(summary)):
        yield f"- {_text(line)}"
    for line in coverage.losses(summary):
        yield f"- {_text(line)}"


def _verdict(summary: Summary, loader: LoaderSummary, judged: Verdict) -> Iterator[str]:
    yield f"**{_text(coverage.verdict_words(judged))}**: {_text(judged.summary)}"
    for line in (judged.doubt, *judged.flaws):
        if line:
            yield f"\n> {_text(line)}"
    if not judged.causes:
        return
    first = judged.causes[0]
    yield f"\nFirst cause: **{_text(first.title)}**, {_text(coverage.share_words(first, judged))}."
    if judged.as_large:
        yield _text(coverage.rival_words(judged))
    if first.reason:
        yield _text(first.reason)
    gain = trial.expected_in_run(first.remedy, loader, summary)
    yield f"\nNext step: {_text(first.advice)}" + (f" Expected: {_text(gain)}." if gain else "")
    command = trial.trial_command(summary)
    if command:
        yield f"\n```\n{plain(command).replace('`', '')}\n```"
    yield ""
    causes = judged.largest_causes(_MOST_CAUSES)
    rows = [(cause.title, _share_of(cause, judged)) for cause in causes]
    rest = rest_of(causes)
    rows += [(rest.title, share(rest.share))] if rest else []
    yield from _table((f"cause ({loader.scope.title})", f"of the {coverage.loop_of(judged)}"), rows)
    if judged.ruled_out:
        yield f"\nRuled out: {_text(', '.join(judged.ruled_out))}."


def _facts(summary: Summary, loader: LoaderSummary) -> Iterator[str]:
    scope, times = loader.scope, loader.times
    settings = ", ".join(
        f"{name}={scope.settings[name]}"
        for name in ("batch_size", "num_workers", "prefetch_factor", "pin_memory")
        if scope.settings.get(name) is not None
    )
    loop = times["loop_ns"] / max(len(scope.ranks), 1)
    yield f"{coverage.rate(loader)}, loop {duration(loop)}; {settings}"
    yield from coverage.heading_lines(summary)
    cpu = summary.manifest.get("cpu")
    if isinstance(cpu, dict) and cpu.get("model"):
        yield f"{cpu['model']}, {cpu.get('affinity')} of {cpu.get('logical')} CPUs"


def _share_of(cause: Cause, judged: Verdict) -> str:
    """Return a cause's share of the loop; one of the whole run says so."""
    if cause.is_silent:
        return ""
    whole = coverage.whole_of(cause, judged)
    return share(cause.share) + ("" if whole == coverage.loop_of(judged) else f" of the {whole}")


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a table with names on the left, figures on the right."""
    titles = [_text(heading) for heading in headings]
    yield f"| {' | '.join(titles)} |"
    yield f"| --- |{' ---: |' * (len(titles) - 1)}"
    for row in rows:
        yield f"| {' | '.join(_text(cell) for cell in row)} |"


def _text(words: str) -> str:
    """Escape text for Markdown, on one line."""
    escaped = _SPECIAL.sub(lambda match: f"\\{match[0]}", plain(words))
    return " ".join(escaped.translate(_REFERENCES).split())
