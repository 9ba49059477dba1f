"""Further steps after the first: for other causes, without those that contradict an earlier one."""

import re
from collections.abc import Iterator

from lotus.analysis.verdict.causes.edges import SHUTDOWN, STARTUP, TRAINING_STEP
from lotus.analysis.verdict.causes.outliers import STALLS
from lotus.analysis.verdict.causes.remedy import PERSISTENT, WORKERS
from lotus.analysis.verdict.causes.threads import OTHERS
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.reporters.run import trial

LEAST_SECOND = 0.05  # of the loop: a second cause of less needs no advice
MOST_LATER = 2  # causes beyond the first that have advice
_AT_EDGES = {STARTUP.kind, SHUTDOWN.kind}  # what helps against one helps against the other
_MORE_WORKERS = re.compile(r"raise num_workers|set num_workers", re.IGNORECASE)
_NO_MORE_WORKERS = re.compile(
    r"more (?:workers |of them )?will not help|fewer workers|num_workers=0|higher\s+num_workers"
    r"|no number of workers|more workers start for longer",
    re.IGNORECASE,
)


def later_causes(judged: Verdict) -> list[Cause]:
    """Return the causes after the first that have a relevant share and advice of their own.

    The largest come first. Excluded are the training step, whose advice is for a loop that does not
    wait, and other programs, which the verdict mentions first.
    """
    chosen = judged.causes[:1]
    for cause in judged.causes[1:]:
        if (
            cause.share >= LEAST_SECOND
            and cause.kind not in (TRAINING_STEP.kind, OTHERS.kind)
            and not any(_is_against(cause, earlier) for earlier in chosen)
        ):
            chosen.append(cause)
    return chosen[1 : 1 + MOST_LATER]


def later_steps(judged: Verdict) -> Iterator[tuple[int, str]]:
    """Yield (number, "for CAUSE: ADVICE") of the steps after the first."""
    for number, cause in enumerate(later_causes(judged), 2):
        name = cause.title.partition(": ")[
            0
        ]  # without its explanation: the causes are listed above
        yield number, f"for {name}: {step_words(cause)}"


def step_words(cause: Cause) -> str:
    """Return the advice on a later cause, and its predicted gain alone."""
    gain = trial.expected(cause.remedy)
    return cause.advice + (f" Expected of it alone: {gain}." if gain else "")


def _is_against(cause: Cause, earlier: Cause) -> bool:
    """Return whether its advice repeats or contradicts that on an earlier cause."""
    mine, theirs = cause.remedy.setting, earlier.remedy.setting
    if cause.advice == earlier.advice or {cause.kind, earlier.kind} <= _AT_EDGES:
        return True
    # Who waits for what another one holds, holds it too.
    for one, setting in ((cause, theirs), (earlier, mine)):
        if one.kind == STALLS.kind and setting.get(WORKERS):
            return True
    if any(name in theirs and theirs[name] != value for name, value in mine.items()):
        return True
    if any(a.get(WORKERS) == 0 and b.get(PERSISTENT) for a, b in ((mine, theirs), (theirs, mine))):
        return True
    return any(
        pattern.search(cause.advice) and other.search(earlier.advice)
        for pattern, other in (
            (_MORE_WORKERS, _NO_MORE_WORKERS),
            (_NO_MORE_WORKERS, _MORE_WORKERS),
        )
    )
