"""What threads were blocked in, in words: operations, their states, and what is not known."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from lotus.analysis.batches.components import COLLATE, OWN
from lotus.analysis.observations import looks
from lotus.analysis.observations.blocked_time import ELSEWHERE, FEW, LEAST_LOOKS, MIXED
from lotus.analysis.observations.looked_parts import MAKING
from lotus.analysis.observations.places import BlockedPlace
from lotus.analysis.verdict.causes.making.waiting import REASONS
from lotus.common.text.formatting import operation_name, plain, share
from lotus.reporters.base.console import rows_of

_NAMES = {
    looks.OWN_CODE: f"({OWN})",
    looks.COLLATE: f"({COLLATE})",
    looks.NEXT: "(next)",
    looks.STEP: "(step)",
}
_NOT_KNOWN = {
    FEW: f"seen fewer than {LEAST_LOOKS} times",
    ELSEWHERE: "lotus looks at main threads, and it ran in others",
}


def name_of(row: Mapping[str, Any]) -> str:
    """Return the name of the operation of a row of `blocked_time`."""
    name = _NAMES.get(row["operation"]) or plain(operation_name(row["operation"]))
    return f"{name}, {row['loaders']} loaders" if row["loaders"] > 1 else name


def state_of(row: Mapping[str, Any]) -> str:
    """Return what the threads did, or that it is not known."""
    if row["missing"] in _NOT_KNOWN:
        return f"not known: {_NOT_KNOWN[row['missing']]}"
    who = "it or what follows it " if row["missing"] == MIXED else ""
    if row["reason"] == looks.COMPUTING:
        return f"{who}computes, or is ready to"
    if row["awaits"]:
        return f"waits for the workers, most likely ({brief(row['reason'])})"
    return who + REASONS[row["reason"]][0]


def place_of(row: Mapping[str, Any]) -> str:
    """Return where it was blocked, such as "82% at /data/train/ (ext4)"; "": not known."""
    if not row["place"]:
        return ""
    return str(BlockedPlace(row["reason"], row["place"], row["file_system"], row["place_share"]))


def places(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line on each row whose place is known, such as "Read, file: 82% at /data/"."""
    for row in rows_of(rows):
        if where := place_of(row):
            yield f"{name_of(row)}, {brief(row['reason'])}: {where}"


def brief(reason: str) -> str:
    """Return a reason in one or two words."""
    return reason.replace("-", " ")


def not_known(rows: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on operations whose states are not known."""
    for why, words in _NOT_KNOWN.items():
        names = [name_of(row) for row in rows_of(rows[rows["missing"] == why])]
        if names:
            yield f"Not known for {' and '.join(names)}: {words}."


def contradictions(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on what CPU clocks say where looks say something else."""
    found = {
        "the making of batches" if row["part"] == MAKING else name_of(row): row["clock_share"]
        for row in rows_of(rows[rows["contradicted"].astype(bool)])
    }
    for name, part in found.items():
        yield f"By CPU clocks, which are exact, {name} was blocked for {share(part)} of its time."
