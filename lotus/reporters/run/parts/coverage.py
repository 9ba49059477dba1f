"""Lines that all forms of the report share: what was recorded, and what is missing."""

import math
import shlex
from collections.abc import Iterator, Sequence

from lotus.analysis.batches.epoch_coverage import Passes
from lotus.analysis.batches.rate_spread import rate_spread
from lotus.analysis.batches.sample_counts import OF_ITEMS
from lotus.analysis.common.columns import int_column, records
from lotus.analysis.summary import LoaderSummary, Summary
from lotus.analysis.verdict.causes.making.prefetch import PREFETCH
from lotus.analysis.verdict.causes.repetition import SAMPLES_TWICE
from lotus.analysis.verdict.causes.run.outside import OUTSIDE
from lotus.analysis.verdict.verdict import STANDSTILL, Cause, Verdict
from lotus.common.text.formatting import (
    amount,
    brief_command,
    duration,
    factor,
    plain,
    plural,
    share,
    signal_name,
    size,
)
from lotus.reading import missing_data
from lotus.reading.missing_data import SEND_TIMES

LEAST_INTERVAL = 0.01  # narrower ones are lost in rounding


def heading_lines(summary: Summary) -> Iterator[str]:
    """Yield what ran, how it ended and what the recording covers."""
    manifest = summary.manifest
    start, end = manifest.get("start_ns"), manifest.get("end_ns")
    words = manifest.get("command") or []
    parts = [_ran(words)] if words else []
    if start and end:
        parts.append(duration(end - start))
    parts.append(_ending(summary))
    yield "lotus report: " + ", ".join(part for part in parts if part)
    cover = coverage(summary)
    if cover:
        yield cover


def _ran(words: Sequence[object]) -> str:
    """Return the command, shortened, or that it was a cell of a notebook."""
    kernel = any("ipykernel_launcher" in str(word) for word in words[:2])
    return "a cell of a notebook" if kernel else brief_command(words, 60)


def _ending(summary: Summary) -> str:
    manifest = summary.manifest
    if manifest.get("state") == "running":
        return "still running, or lotus was killed or could not write its end"
    code, kills = manifest.get("exit_code"), manifest.get("memory_kills")
    how = f"exit code {code}" if code else ""
    if manifest.get("signal"):
        how = f"ended by {signal_name(manifest['signal'])}"
    killed = f"{plural(kills, 'process')} killed for lack of memory" if kills else ""
    return ", ".join(words for words in (how, killed) if words)


def coverage(summary: Summary) -> str:
    """Return what the user asked to record, if not everything."""
    manifest = summary.manifest
    parts = []
    level = manifest.get("level")
    if level and level != "op":
        parts.append(f"level {plain(level)}")
    if manifest.get("batches"):
        parts.append(f"batches {plain(manifest['batches'])} of each epoch")
    if (manifest.get("every") or 1) != 1:
        parts.append(f"one batch in {manifest['every']}")
    if manifest.get("max_log"):
        parts.append(f"at most {size(float(manifest['max_log']))}")
    return "Recorded: " + ", ".join(parts) if parts else ""


def verdict_colour(judged: Verdict) -> str:
    """Return the colour of the verdict on a terminal."""
    if judged.step_lacks_cores or _repeats(judged):
        return "red"
    colours = {"consumer-bound": "green", "unknown": "yellow"}
    return colours.get(judged.kind, "red" if judged.degree != "moderately" else "yellow")


def verdict_words(judged: Verdict) -> str:
    """Return the verdict in capitals; a loop bound by its training step is not input-bound."""
    if judged.step_lacks_cores:
        return "NOT INPUT-BOUND, BUT SHORT OF CORES"
    if _repeats(judged):
        inferred = "whole_passes" in judged.causes[0].evidence
        return f"NOT INPUT-BOUND, BUT {'DATA ARE NOT DIVIDED' if inferred else 'SAMPLES REPEAT'}"
    if judged.kind in ("input-bound", "consumer-bound"):
        return f"{judged.degree.upper()} INPUT-BOUND"
    if judged.kind == OUTSIDE.kind:
        return "NOT THE LOADERS"
    if judged.kind == STANDSTILL:
        return "NOTHING MOVES"
    return judged.kind.upper().replace("UNKNOWN", "NO VERDICT")


def _repeats(judged: Verdict) -> bool:
    """Return True if the loop does not wait, but is longer for samples that come more than once."""
    first = judged.causes[0].kind if judged.causes else ""
    return judged.kind == "consumer-bound" and first == SAMPLES_TWICE.kind


def loader_lines(loader: LoaderSummary) -> Iterator[str]:
    """Yield the loader's name and settings."""
    scope = loader.scope
    settings = scope.settings
    text = f"Loader {scope.loader}: {plain(scope.title)}, "
    if settings.get("name") and settings.get("dataset"):
        text += f"{plain(settings['dataset'])}, "
    text += f"{plural(scope.num_workers, 'worker')}"
    if isinstance(settings.get("batch_size"), int):
        text += f", batch size {settings['batch_size']}"
    if scope.num_workers and settings.get("prefetch_factor"):
        text += f", prefetch {settings['prefetch_factor']}"
    for name, label in (("pin_memory", "pinned"), ("persistent_workers", "persistent")):
        if settings.get(name) is True:
            text += f", {label}"
    text += f", {_passes(loader.passes)}"
    if len(scope.ranks) > 1:
        text += f", {len(scope.ranks)} ranks"
    yield text
    made_count, taken_count = loader.coverage["batches_made"], loader.coverage["batches_taken"]
    recorded_whole = loader.coverage["batches_recorded_whole"]
    if taken_count and recorded_whole < taken_count:
        yield f"{amount(recorded_whole)} of {plural(taken_count, 'batch')} are recorded in detail."
    yield from device(loader)
    if scope.is_taken_aside:
        yield (
            "Another thread than the main one takes its batches: a step is what that thread does "
            "between two batches, such as waiting until one that it read ahead is used."
        )
    state_ns = loader.times["state_dict_ns"]
    if state_ns > 0:
        yield f"Of the training steps, state_dict() of the loader took {duration(state_ns)}."
    shared = loader.core_shared
    if shared > 0 and not loader.verdict.doubt:  # which says it better
        whose, own = ("workers'", "their") if scope.num_workers else ("main process's", "its")
        yield (
            f"The cores were shared: {share(shared)} of the {whose} time off a core was not {own} "
            "own waiting; the verdict is less certain."
        )
    if loader.counted == OF_ITEMS:
        yield (
            "An item is what the data set yields: how many samples one holds does not show in its "
            "shape."
        )
    elif loader.by_first_dimension:
        yield "The data set yields whole batches: their first dimension counts the samples."
    empty = loader.empty_workers
    if empty:
        yield (
            f"{empty} of the {scope.num_workers} workers made no batch: the data set gave them no "
            "data, as where it has fewer shards than workers."
        )
    unused = loader.passes.unused
    if unused:
        were = "was" if unused == 1 else "were"
        yield f"{plural(unused, 'batch')} that a library took ahead {were} not used."
    if loader.coverage["made_never_taken"] and made_count:
        yield f"{plural(loader.coverage['made_never_taken'], 'batch')} made were not taken."


def device(loader: LoaderSummary) -> Iterator[str]:
    """Yield the share of the loop in which an accelerator was idle, if one was timed."""
    timed = loader.device
    if timed is not None:
        of = "" if timed.steps == timed.taken else f" of {amount(timed.taken)}"
        yield (
            f"The device was idle for at least {share(timed.idle_share)} of the loop, with nothing "
            f"to do while the program waited for data (for {share(timed.wait_share)} of its own "
            f"time), and busy for at most {share(1 - timed.idle_share)}: by the device's clock, in "
            f"{amount(timed.steps)}{of} {'step' if timed.taken == 1 else 'steps'}. Expected gains "
            "count the program's own steps and do not account for the device."
        )


def rate(loader: LoaderSummary) -> str:
    """Return samples per second, or what is counted instead."""
    return f"{amount(loader.times['samples_per_s'])} {loader.counted}s/s"


_CEILINGS = {
    "step_limit": ("the steps", "waits", "step_ns"),
    "input_limit": ("the making of batches, without sending,", "batches", "fetch_ns"),
}


def ceiling_bounds(loader: LoaderSummary) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each rate that `times` has of steps or making alone; samples/s.

    NaN where there are too few batches to tell.
    """
    bounds = {}
    for name, (_, table, column) in _CEILINGS.items():
        alone = loader.times[f"{name}_samples_per_s"]
        low, high = rate_spread(loader.scope, table, column)
        known = alone > 0 and high > low
        bounds[name] = (low * alone, high * alone) if known else (math.nan, math.nan)
    return bounds


def ceilings(loader: LoaderSummary) -> str:
    """Return the rates that steps and the making of batches would have alone; "" if unknown."""
    parts = []
    for name, (low, high) in ceiling_bounds(loader).items():
        who, alone = _CEILINGS[name][0], loader.times[f"{name}_samples_per_s"]
        if alone > 0:
            sure = f" ({amount(low)} to {amount(high)})" if high > low else ""
            parts.append(f"{who} {amount(alone)}{sure}")
    words = f"Alone, at the times of this run: {', '.join(parts)} {loader.counted}s/s"
    return words if parts else ""


def _passes(passes: Passes) -> str:
    """Return how often the loader was iterated; an epoch is an iteration to the end of the data."""
    count, incomplete = passes.iterations, passes.iterations - passes.whole
    if passes.endless:
        text = f"{plural(count, 'iteration')} past the length that it reports"
    elif incomplete == 0:
        text = plural(count, "epoch")
    elif passes.whole == 0:
        text = f"{plural(count, 'iteration')}, {'not' if count == 1 else 'none'} to the end"
    else:
        text = f"{plural(count, 'epoch')}, {incomplete} of them left early"
    if not passes.sanity:
        return text
    sanity = f"Lightning's sanity check ({plural(passes.sanity_batches, 'batch')})"
    return f"{text} and {sanity}" if count else sanity


def whole_of(cause: Cause, judged: Verdict) -> str:
    """Return what a cause's share refers to: the loop, as recorded or replayed, or the run."""
    return "run" if cause.kind == OUTSIDE.kind else loop_of(judged)


def loop_of(judged: Verdict) -> str:
    """Return which loop the causes are of."""
    return "loop without other programs" if judged.without_others else "loop"


def causes_title(judged: Verdict) -> str:
    """Return the title of a list of causes."""
    without = ", without other programs" if judged.without_others else ""
    return f"What the loop's time is spent on{without}"


def gain_words(cause: Cause, judged: Verdict) -> str:
    """Return how fast the loop would be without a cause.

    "At least" on a busy machine: its time without a core is attributed to other programs, unless
    it is known. "At most" if a lock serialises what workers could do in parallel, or if making
    batches further ahead needs cores that other programs use.
    """
    bound = "at least " if judged.doubt and not cause.delay_ns else ""
    most = cause.gain >= cause.at_once or (judged.doubt and cause.kind == PREFETCH.kind)
    bound = "at most " if most else bound
    text = f"{bound}{factor(cause.gain)} times as fast"
    if cause.delay_ns and not most:
        text += f", as {share(cause.delay_share)} more, in which it had no core, would go too"
    return text


def interval(cause: Cause) -> str:
    """Return the 95 % interval of a cause's share; "-" if it is not known."""
    return f"{share(cause.low)} to {share(cause.high)}" if cause.high >= cause.low else "-"


def rival_words(judged: Verdict) -> str:
    """Return that another cause may be the largest; "" if the batches distinguish them."""
    if not judged.as_large:
        return ""
    return f"Another cause may be as large: {plain(judged.as_large)}."


def share_words(cause: Cause, judged: Verdict) -> str:
    """Return the share of a cause, and how fast the loop would be without it."""
    if cause.is_silent:
        return "which costs the loop hardly any time"
    interval_text = f" ({interval(cause)})" if cause.high - cause.low >= LEAST_INTERVAL else ""
    text = f"{share(cause.share)}{interval_text} of the {whole_of(cause, judged)}"
    if math.isfinite(cause.gain):
        text += (
            f"; if it cost nothing and all else stayed the same, the loop would be "
            f"{gain_words(cause, judged)}"
        )
    return text


def open_waits(summary: Summary) -> Iterator[str]:
    """Yield a line for each unfinished wait at the end of the run, which the figures exclude."""
    for row in records(summary.open_waits):
        of = f"loader {row['loader']}, " if len(summary.loaders) > 1 else ""
        yield (
            f"It ended after {duration(row['wait_ns'])} of waiting for batch {row['batch']} ({of}"
            f"epoch {row['epoch']}), which no number here includes: `lotus top "
            f"{plain(shlex.quote(summary.path))}` shows what held it up."
        )


def unseen(summary: Summary) -> Iterator[str]:
    """Yield a line for each kind of loader that was found but cannot be recorded."""
    for thing in summary.unseen:
        yield f"Not seen: {plain(thing.get('what', '?'))}: {plain(thing.get('why', ''))}"


def no_loader(summary: Summary) -> str:
    """Return that no DataLoader was iterated, or that it is not known, as records are lost."""
    if len(summary.lost):
        return "It is not known whether a DataLoader was iterated: what was recorded is lost."
    return "No DataLoader was iterated in this run."


def losses(summary: Summary, slight: bool = True) -> Iterator[str]:
    """Yield a line for each kind of loss and each note; `slight`: also of what changes nothing."""
    lost = summary.lost
    if len(lost) and not slight:
        lost = lost[lost["what"].astype(str) != SEND_TIMES]
    if len(lost):
        table = lost.assign(
            what=lost["what"].astype(str),
            count=int_column(lost, "count", 0),
            bytes=int_column(lost, "bytes", 0),
        )
        table = table.groupby("what", as_index=False).agg(
            times=("what", "size"), count=("count", "sum"), bytes=("bytes", "sum")
        )
        for row in records(table):
            yield missing_data.loss(plain(row["what"]), row["count"], row["bytes"], row["times"])
    for note in summary.notes:
        yield plain(note)
    for one_loader in summary.loaders:
        unknown = one_loader.phases["unseen"]
        wait = one_loader.times["wait_ns"]
        if not one_loader.scope.partial and unknown > 0.03 * wait:
            yield (
                f"Loader {one_loader.scope.loader}: {duration(unknown)} of waiting have no "
                "record of how the batch was made."
            )
