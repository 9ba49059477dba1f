"""Work that is blocked, as a cause of its own: by a lock, by a limit, or by the time of an answer.

The work itself makes the charge; these rows have its words.
"""

from dataclasses import replace

from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge
from lotus.analysis.verdict.causes.making import blocked_kinds
from lotus.analysis.verdict.causes.making.work import (
    COLLATE,
    DATASET,
    FETCH,
    OPERATION,
    WORK_FACTS,
    work_reason,
)

_OF_WORK = {row.kind: row for row in (OPERATION, DATASET, COLLATE, FETCH)}


def _of_work(charge: Charge) -> tuple[CauseRow, Charge]:
    """Return the row of the work that is blocked, and the charge as one of it."""
    return _OF_WORK[charge.work], replace(charge, kind=charge.work, work="")


def _title(charge: Charge, circumstances: Circumstances) -> str:
    row, work = _of_work(charge)
    return row.full_title(work, circumstances)


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    row, work = _of_work(charge)
    return row.advice(work, circumstances)


def _row(kind: str, title: str) -> CauseRow:
    return CauseRow(
        kind=kind,
        title=title,
        full_title=_title,
        charges=lambda ledger: (),
        facts=WORK_FACTS,
        reason=work_reason,
        advice=_advice,
    )


SHARED_LOCK = _row(blocked_kinds.SHARED_LOCK, "a lock that workers share")
SHARED_LIMIT = _row(blocked_kinds.SHARED_LIMIT, "a limit that all workers share")
LATENCY = _row(blocked_kinds.LATENCY, "the time of an answer, from storage or a server")
