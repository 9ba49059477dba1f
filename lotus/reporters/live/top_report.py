"""The views of `lotus top`: lines for a terminal, one line for `lotus trace --live`, a document.

The document of `--json` (durations and times in ns, sizes in bytes, shares and CPU as fractions of
one; null: not known, not measured, or none):

    schema     1
    run        the directory, as given
    state      absent, begun, running, ended, killed or elsewhere, as lotus.live.view.View has it
    ...        the other fields of View: command, elapsed_ns, seen_ns (CLOCK_MONOTONIC),
               seen_wall_ns (since 1970), age_ns, exit_code, signal, finished, notes, shm, shm_size
    verdict    that of the rank that holds up the others: kind, headline, lines, commands,
               quiet_ns, pid, worker (-1: the main process), batch, sample:
               lotus.live.hang_detection.HangVerdict
    groups     one for each main process: the fields of lotus.live.view.LoopView, with
               main and workers: what each process does (lotus.live.hang_detection.Doing),
               recent and overall: lotus.live.view.Rates (batches and samples a second),
               operations: a list of {"name", "share"}, and the group's own verdict
    stacks     with --stacks: pid -> its Python frames, innermost first
"""

import dataclasses
import math
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lotus.analysis.common.loader_titles import title_of
from lotus.common.storage import files
from lotus.common.text.formatting import (
    amount,
    duration,
    operation_name,
    plain,
    plural,
    share,
    shorten,
    size,
)
from lotus.live.hang_detection import Doing, HangVerdict
from lotus.live.view import LoopView, Rates, View

MOST_WORKERS = 24  # in a snapshot without an end of the screen
MOST_RANKS = 8  # shown in full there
MOST_FRAMES = 6
LEAST_WIDTH = 40
_STYLES = {"moving": "green", "starting": "dim", "outside": "yellow", "step": "yellow"}


class ScreenLine(NamedTuple):
    """A line of text with a style of rich; a command must not be cut off."""

    text: str
    style: str = ""


Stacks = Mapping[int, Sequence[str]]


def lines(
    view: View, run: str, width: int, height: int | None = None, stacks: Stacks | None = None
) -> list[ScreenLine]:
    """Return the lines to show in `width` columns (and `height` rows), most important first."""
    width = max(width, LEAST_WIDTH)
    begun = head(view, run, width)
    for note in view.notes:
        begun += _wrapped(f"note: {plain(note)}", width, "yellow")
    groups = sorted(view.groups, key=lambda group: group.verdict is not view.verdict)
    if len(groups) > 1:
        begun += [ScreenLine(""), *(_short(group, width) for group in view.groups)]
    visible = groups[:MOST_RANKS]
    if height is not None and len(groups) > 1:
        visible = groups[:1]
    room = None if height is None else max(height - len(begun), 6)
    body: list[ScreenLine] = []
    for group in visible:
        body += _group(group, view, width, room, stacks or {}, len(groups) > 1)
    if len(visible) < len(groups) and height is None:
        body.append(ScreenLine(f"and {len(groups) - len(visible)} more ranks, above"))
    all_lines = [*begun, *body]
    if view.shm_size and view.state == "running":
        text = f"/dev/shm     {size(view.shm)} of {size(view.shm_size)} in use, by all programs"
        all_lines.append(ScreenLine(_cut(text, width), "dim"))
    return all_lines if height is None else all_lines[:height]


def head(view: View, run: str, width: int) -> list[ScreenLine]:
    """Return lines on the run, its problem if it has one, and what to type next."""
    width = max(width, LEAST_WIDTH)
    return [*_title(view, run, width), *_verdict(view, run, width)]


def _title(view: View, run: str, width: int) -> list[ScreenLine]:
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.seen_wall_ns / 1e9))
    text = {
        "absent": "no run here yet",
        "begun": f"begun {_time(view.elapsed_ns)} ago; no DataLoader has been iterated yet",
        "running": f"running for {_time(view.elapsed_ns)}",
        "ended": f"ended {clock}, after {_time(view.elapsed_ns)}",
        "killed": f"killed; last sign of life {clock}, after {_time(view.elapsed_ns)}",
        "elsewhere": f"on another machine; last sign of life {clock} ({_time(view.age_ns)} ago)",
    }[view.state]
    if view.state == "ended" and view.signal:
        text += f" (by signal {view.signal})"
    elif view.state == "ended" and view.exit_code is not None:  # None: it was only observed
        text += f" (code {view.exit_code})"
    lines = _wrapped(f"{plain(run)}: {text}", width, "bold")
    if view.command:
        lines.append(ScreenLine(_cut(f"  {plain(view.command)}", width), "dim"))
    return lines


def _verdict(view: View, run: str, width: int) -> list[ScreenLine]:
    """Return lines on a problem, and what to type next."""
    if view.state == "ended":
        return [*_left(view, width), ScreenLine(f"  next: lotus report {_word(run)}", "bold")]
    if view.state == "killed":
        text = "none of its processes is alive, and run.json has no end: the run was killed, or "
        text += "its machine stopped"
        why = _wrapped(text, width, "bold red")
        return [*why, *_left(view, width), ScreenLine(f"  next: lotus report {_word(run)}", "bold")]
    if view.state == "elsewhere":
        hosts = ", ".join(sorted({plain(group.host) for group in view.groups}))
        return _wrapped(f"run lotus top on {hosts} to see whether it is alive", width, "yellow")
    verdict = view.verdict
    if verdict is None or verdict.kind == "moving":
        return []
    named = [group for group in view.groups if group.verdict is verdict]
    rank = f"rank {named[0].rank}: " if len(view.groups) > 1 and named else ""
    style = "bold red" if verdict.bad else _STYLES.get(verdict.kind, "")
    lines = _wrapped(rank + plain(verdict.headline), width, style)
    for text in verdict.lines:
        lines += _wrapped(plain(text), width, "", "  ")
    lines += [ScreenLine(f"  next: {plain(text)}", "bold") for text in verdict.commands]
    if verdict.bad and verdict.kind not in ("stopped", "dead"):
        lines.append(ScreenLine(f"  next: lotus top --stacks {_word(run)}", "bold"))
    return lines


def _left(view: View, width: int) -> list[ScreenLine]:
    """Return lines on processes that were left over when the run ended."""
    lines: list[ScreenLine] = []
    for group in view.groups:
        for process in (group.main, *group.workers):
            if process.phase != "ended":
                name = f"rank {group.rank}, " if len(view.groups) > 1 else ""
                doing = _doing(dataclasses.replace(process, alive=None))
                text = f"{name}{process.name} (pid {process.pid}) was at: {doing}"
                lines += _wrapped(plain(text), width, "", "  ")
    most = 12
    if len(lines) > most:
        lines = [*lines[:most], ScreenLine(f"  and {len(lines) - most} more lines of that kind")]
    return lines


def _short(group: LoopView, width: int) -> ScreenLine:
    """Return a rank as one line."""
    rates = group.overall if group.overall.loops else group.recent
    text = (
        f"rank {group.rank}  {_rate(rates)}, waits {share(rates.wait_share)}, {_doing(group.main)}"
    )
    if group.verdict.kind != "moving":
        text += f"; {group.verdict.kind}"
    return ScreenLine(_cut(plain(text), width), "bold red" if group.verdict.bad else "")


def _group(
    group: LoopView, view: View, width: int, room: int | None, stacks: Stacks, named: bool
) -> list[ScreenLine]:
    head = f"rank {group.rank}" + (f" on {group.host}" if group.host else "") if named else ""
    lines = [ScreenLine("")]
    loader = group.loader
    if loader:
        length = loader.get("length")
        of = f" of {amount(length)}" if isinstance(length, int) else ""
        place = f"{_pass(group)} {group.epoch}, batch {amount(group.epoch_batch)}{of}"
        count = loader.get("num_workers")
        workers = plural(count if isinstance(count, int) else len(group.workers), "worker")
        titles = [title_of(loader, iterated) or "a loader" for iterated in (True, False)]
        whole, brief = (
            f"{head}{': ' if head else ''}{title}, {workers}: {place}" for title in titles
        )
        head = whole if len(plain(whole)) <= width else brief
    if head:
        lines.append(ScreenLine(_cut(plain(head), width), "bold"))
    lines += [ScreenLine(_cut(plain(text), width)) for text in _figures(group)]
    if view.state in ("running", "elsewhere"):
        rows_left = None if room is None else max(room - len(lines) - 2, 3)
        lines += _processes(group, width, rows_left, stacks)
    return lines


def _pass(group: LoopView) -> str:
    """Return the name of its iteration: "epoch" if it has the length that the loader announces."""
    length = group.loader.get("length")
    return "epoch" if isinstance(length, int) and group.epoch_batch <= length else "iteration"


def _figures(group: LoopView) -> list[str]:
    recent, overall = group.recent, group.overall
    texts = []
    if overall.loops:
        span, last = duration(overall.span_ns), duration(recent.span_ns)
        waits = (
            f"waiting      {share(overall.wait_share)} of this time, with start-up and shut-down"
        )
        if overall.loops == 1:
            texts += [f"throughput   {_rate(overall)} over the loop of {span}", waits]
        else:
            texts.append(
                f"throughput   {_rate(overall)} over {overall.loops} loops of {span} together"
            )
            texts.append(f"{'':13}{_rate(recent)} over the last, of {last}")
            texts.append(f"{waits}; {share(recent.wait_share)} of the last")
    elif not math.isnan(recent.span_ns):
        span = duration(recent.span_ns)
        whole_duration = duration(overall.span_ns)
        texts.append(f"throughput   {_rate(recent)} in the last {span}")
        texts.append(f"{'':13}{_rate(overall)} over all {whole_duration} since the first batch")
        text = f"waiting      {share(recent.wait_share)} of the last {span}"
        texts.append(f"{text}; {share(overall.wait_share)} of all {whole_duration}")
    if group.ready is not None:
        of = f" of at most {group.capacity}" if group.capacity else ""
        texts.append(f"ready        {plural(group.ready, 'batch')}{of} made and not taken")
    parts = [
        f"{operation_name(name)} {share(part)}" for name, part in group.operations if part >= 0.005
    ]
    if parts:
        texts.append(f"operations   {', '.join(parts)}")
    memory = _memory(group)
    return [*texts, f"memory       {memory}"] if memory else texts


def _memory(group: LoopView) -> str:
    parts = []
    if not math.isnan(group.main.rss):
        parts.append(f"main {size(group.main.rss)}")
    pss = [worker.pss for worker in group.workers if not math.isnan(worker.pss)]
    rss = [worker.rss for worker in group.workers if not math.isnan(worker.rss)]
    if rss and len(pss) == len(rss):
        parts.append(f"{plural(len(pss), 'worker')} {size(sum(pss))} (PSS)")
    elif rss:
        parts.append(
            f"{plural(len(rss), 'worker')} {size(sum(rss))} (shared memory counted more than once)"
        )
    return ", ".join(parts)


def _processes(group: LoopView, width: int, room: int | None, stacks: Stacks) -> list[ScreenLine]:
    """Return lines on the main process, then the workers, most relevant first; the rest in one
    line.
    """
    workers = sorted(group.workers, key=lambda worker: _importance(worker, group.verdict))
    most = MOST_WORKERS if room is None else max(room - 2, 1)
    visible, hidden = workers[:most], workers[most:]
    if len(hidden) == 1 and room is None:
        visible, hidden = workers, []
    if group.verdict.kind in ("moving", "step", "outside"):
        visible.sort(key=lambda worker: worker.worker)
    lines = [ScreenLine(_cut(f"{'':13}{'since':>8} {'CPU':>5}  doing", width), "dim")]
    for worker in (group.main, *visible):
        name = "main" if worker.worker < 0 else f"worker {worker.worker}"
        text = f"{name:<12} {_time(worker.since_ns):>8} {share(worker.cpu):>5}  {_doing(worker)}"
        style = "bold red" if group.verdict.bad and worker.pid == group.verdict.pid else ""
        if group.main.phase == "wait" and worker.worker >= 0 and worker.batch == group.epoch_batch:
            text += "; awaited" if worker.phase in ("fetch", "collate", "send") else ""
        lines.append(
            ScreenLine(_cut(plain(text), width), style or ("dim" if worker.phase == "idle" else ""))
        )
        frames = stacks.get(worker.pid, ())
        lines += [
            ScreenLine(_cut(f"    {plain(frame)}", width), "cyan") for frame in frames[:MOST_FRAMES]
        ]
        if len(frames) > MOST_FRAMES:
            lines.append(ScreenLine(f"    and {len(frames) - MOST_FRAMES} outer frames", "dim"))
    if hidden:
        phases = Counter(process.phase for process in hidden)
        what = ", ".join(
            name if len(phases) == 1 else f"{count} {name}" for name, count in phases.most_common()
        )
        lines.append(ScreenLine(_cut(f"and {len(hidden)} more: {plain(what)}", width), "dim"))
    if group.others:
        lines.append(ScreenLine(f"and {plural(group.others, 'worker')} of other loaders", "dim"))
    return lines


def _importance(doing: Doing, verdict: HangVerdict) -> tuple[bool, bool, bool, int]:
    busy = doing.phase not in ("idle", "ended")
    return (doing.pid != verdict.pid, doing.alive is not False, not busy, -doing.quiet_ns)


def _doing(doing: Doing) -> str:
    if doing.alive is False and doing.phase == "ended":
        return "ended"
    text = doing.phase
    if doing.batch >= 0 and doing.phase in ("fetch", "collate", "send", "wait"):
        text += f" batch {amount(doing.batch)}"
    if doing.sample_ns is not None:
        text += f", sample {'' if doing.sample is None else doing.sample}".rstrip()
        text += f" ({_time(doing.sample_ns)})"
    if doing.operation is not None:
        text += f", {shorten(operation_name(doing.operation), 40)}"
    if doing.alive is False:
        return f"{text}; gone"
    if doing.status == "D":
        text += "; waits for storage"
    elif doing.status in ("T", "t"):
        text += "; stopped"
    if doing.asleep and doing.phase not in ("idle", "wait", "ended") and doing.quiet_ns > 1e9:
        text += f"; sleeps in {doing.asleep}"
    return text


def _rate(rates: Rates) -> str:
    if math.isnan(rates.samples):
        return f"{amount(rates.batches)} batches/s"
    return f"{amount(rates.samples)} samples/s ({amount(rates.batches)} batches/s)"


def _time(ns: float) -> str:
    """Format as `duration`, without digits that change faster than the display."""
    return duration(round(ns / 1e9) * 1e9) if ns >= 9.95e9 else duration(ns)


def _wrapped(text: str, width: int, style: str = "", indent: str = "") -> list[ScreenLine]:
    return [
        ScreenLine(line, style)
        for line in textwrap.wrap(
            text,
            width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        )
    ]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _word(run: str) -> str:
    import shlex

    return plain(shlex.quote(run))


def status(view: View, width: int | None = None) -> str:
    """Return one line on a run in progress for `lotus trace --live`, or "".

    A line on a problem is never cut off.
    """
    verdict = view.verdict
    if verdict is None or view.state != "running":
        return ""
    if verdict.bad:
        text = verdict.headline
    else:
        recent = [group.recent for group in view.groups if not math.isnan(group.recent.span_ns)]
        if not recent:
            return ""
        total = sum(loop.samples for loop in recent)
        waits = max(loop.wait_share for loop in recent)
        rate = _rate(recent[0]) if math.isnan(total) else f"{amount(total)} samples/s"
        text = f"{rate}, waits {share(waits)} of the time"
        first = view.groups[0]
        if len(view.groups) > 1:
            text += f" (the rank that waits most of {len(view.groups)})"
        elif first.loader:
            length = first.loader.get("length")
            of = f"/{amount(length)}" if isinstance(length, int) else ""
            text += f", {_pass(first)} {first.epoch} batch {amount(first.epoch_batch)}{of}"
        if len(view.groups) == 1 and first.ready is not None:
            text += f", {first.ready} ready"
    text = f"lotus: {plain(text)}"
    return text if width is None or verdict.bad else _cut(text, max(width, LEAST_WIDTH))


def text(lines: Sequence[ScreenLine]) -> str:
    """Return the lines without their styles."""
    return "\n".join(line.text for line in lines) + "\n"


def document(view: View, *, run: str, stacks: Stacks | None = None) -> dict[str, Any]:
    """Return the document described above."""
    values: dict[str, Any] = {"schema": 1, "run": run, **dataclasses.asdict(view)}
    verdict = view.verdict
    values["verdict"] = None if verdict is None else dataclasses.asdict(verdict)
    for group in values["groups"]:
        group["operations"] = [{"name": name, "share": part} for name, part in group["operations"]]
    if stacks is not None:
        values["stacks"] = {str(pid): list(frames) for pid, frames in stacks.items()}
    finite: dict[str, Any] = files.json_value(values)
    return finite
