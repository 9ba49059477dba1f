"""Remarks on a run: parts of a job that are missing, and what tracers and launcher noted."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.format import job_ranks
from lotus.inside.distributed.clock_sync import NOT_COMPARED
from lotus.reading import missing_data


def notes(
    path: Path, manifest: Mapping[str, Any], remarks: Sequence[str], problem: str
) -> list[str]:
    """Return them without repetitions; first, which parts of the job are missing.

    `remarks` are those of the tracers; `problem` is that of the launcher, "" for none.
    """
    ranks = manifest["ranks"]
    lacking = job_ranks.missing(ranks)
    if not lacking and len({rank["host"] for rank in ranks}) == 1:  # and so one clock
        remarks = [text for text in remarks if not text.startswith(NOT_COMPARED)]
    left = job_ranks.not_merged(manifest.get("merged") or ())
    for what, names in left.items():
        lacking.append(f"{what} stayed in the hosts' runs: {', '.join(names)}")
    apart = missing_data.notes(missing_data.processes(path))
    unseen = [problem] if problem else []
    return list(dict.fromkeys([*lacking, *apart, *remarks, *unseen]))
