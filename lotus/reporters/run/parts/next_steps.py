"""Further steps after the first: for other causes, without those that contradict an earlier one."""

from collections.abc import Iterator

from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.causes.run.edges import SHUTDOWN, STARTUP
from lotus.analysis.verdict.causes.step.training_step import TRAINING_STEP
from lotus.analysis.verdict.causes.step.uneven_steps import LONG_STEPS
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.reporters.run.parts import trial

LEAST_SECOND = 0.05  # of the loop: a second cause of less needs no advice
_LEAST_GAIN = 1.1  # times as fast: a later step that is predicted to gain less is left out
MOST_LATER = 2  # causes beyond the first that have advice
_AT_EDGES = {STARTUP.kind, SHUTDOWN.kind}  # what helps against one helps against the other


def later_causes(judged: Verdict) -> list[Cause]:
    """Return the causes after the first that have a relevant share and advice of their own.

    The largest come first. Excluded are the training step, whose advice is for a loop that does not
    wait, its long ones in a loop that waits, other programs, which the verdict mentions first, and
    settings that a replay does not show to help.
    """
    without = {TRAINING_STEP.kind, OTHERS.kind}
    if judged.kind != "consumer-bound":
        without.add(LONG_STEPS.kind)
    chosen = judged.causes[:1]
    for cause in judged.causes[1:]:
        if (
            cause.share >= LEAST_SECOND
            and cause.kind not in without
            and _may_help(cause)
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


def _may_help(cause: Cause) -> bool:
    gain = cause.remedy.expected
    return not gain.is_possible or (gain.gain >= _LEAST_GAIN and (gain.is_shown or gain.at_best))


def _is_against(cause: Cause, earlier: Cause) -> bool:
    """Return whether its advice repeats or contradicts that on an earlier cause.

    Advice on two operations is the same if only their names differ: those are in the titles.
    """
    words, said = (each.unnamed_advice or each.advice for each in (cause, earlier))
    if words == said or {cause.kind, earlier.kind} <= _AT_EDGES:
        return True
    mine, theirs = cause.remedy, earlier.remedy
    return (bool(mine.setting) and mine.setting == theirs.setting) or mine.contradicts(theirs)
