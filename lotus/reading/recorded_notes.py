"""Remarks on a run: parts of a job that are missing, and what tracers and launcher noted."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.common.text import redaction
from lotus.common.text.formatting import plural
from lotus.format import job_ranks
from lotus.format.run_directory import BLOCKING as NAME
from lotus.inside.distributed.clock_sync import NOT_COMPARED
from lotus.reading import missing_data
from lotus.reading.launcher import launcher_readings
from lotus.reading.launcher.launcher_record import LauncherRecord

_NOT_OBSERVED = (
    f"{NAME} is missing, as in runs of older versions: what threads were blocked in, memory and "
    "other programs were not observed, and no cause is named that needs them"
)
_RECORDED_INSIDE = (
    "recorded from inside the program (lotus.trace(), %%lotus or a callback): what threads were "
    "blocked in, the load of the machine, memory and Python stacks were not observed from outside, "
    "and no cause is named that needs them; `lotus trace -- python train.py` observes them"
)


def notes(
    path: Path, manifest: Mapping[str, Any], remarks: Sequence[str], record: LauncherRecord
) -> list[str]:
    """Return them without repetitions; first, which parts of the job are missing.

    `remarks` are those of the tracers, `record` is the launcher's.
    """
    ranks = manifest["ranks"]
    lacking = job_ranks.missing(ranks)
    if not lacking and len({rank["host"] for rank in ranks}) == 1:  # and so one clock
        remarks = [text for text in remarks if not text.startswith(NOT_COMPARED)]
    left = job_ranks.not_merged(manifest.get("merged") or ())
    for what, names in left.items():
        lacking.append(f"{what} stayed in the hosts' runs: {', '.join(names)}")
    apart = missing_data.notes(missing_data.processes(path))
    return list(dict.fromkeys([*lacking, *apart, *remarks, *_unobserved(manifest, record)]))


def unseen(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what tracers could not observe, and why; each once."""
    reasons = {(event["what"], redaction.text(str(event.get("why", "")))) for event in events}
    return [{"what": what, "why": why} for what, why in sorted(reasons)]


def _unobserved(manifest: Mapping[str, Any], record: LauncherRecord) -> list[str]:
    """Return what the launcher did not observe, or what of it cannot be used."""
    lines = [record.problem] if record.problem else []
    if record.is_missing and _was_launched(manifest):
        lines.append(_NOT_OBSERVED)
    if record.is_missing and _was_recorded_inside(manifest):
        lines.append(_RECORDED_INSIDE)
    if left_out := launcher_readings.left_out(record):
        lines.append(
            f"{plural(left_out, 'reading')} in {NAME} not used: damaged, or of another version"
        )
    return lines


def _was_launched(manifest: Mapping[str, Any]) -> bool:
    """Return True if `lotus trace` has seen it end, and it is not merged from several runs."""
    return _has_ending(manifest) and not manifest.get("merged")


def _was_recorded_inside(manifest: Mapping[str, Any]) -> bool:
    """Return True if a recording has ended, and the program did not: it recorded itself."""
    ended = manifest.get("state") == "ended" and not _has_ending(manifest)
    return ended and not manifest.get("merged")


def _has_ending(manifest: Mapping[str, Any]) -> bool:
    return manifest.get("exit_code") is not None or manifest.get("signal") is not None
