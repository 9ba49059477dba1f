"""The verdict on a loop in which nothing moved any more when its program was ended."""

from dataclasses import replace

from lotus.analysis.observations.loop_standstill import LoopStandstill
from lotus.analysis.verdict.advice.remedy import CODE
from lotus.analysis.verdict.causes.making.waiting import REASONS
from lotus.analysis.verdict.causes.run.standing import STANDING
from lotus.analysis.verdict.parts_of_loop import HIGH
from lotus.analysis.verdict.verdict import STANDSTILL, Cause, Verdict
from lotus.common.text.formatting import duration, plain

_LOCKS = ("lock", "shared-lock")
_MOST_NAMED = 4  # workers


def with_standstill(judged: Verdict, still: LoopStandstill | None, loop_ns: float) -> Verdict:
    """Return the verdict on a loop that stood still at the end, given that on all of it.

    What it did before is judged as it is where that was most of the loop, with a remark.
    """
    if still is None or not loop_ns > 0:
        return judged
    words = f"Nothing moved in the last {duration(still.still_ns)} of the loop: {_where(still)}."
    if still.still_ns < HIGH * loop_ns:
        return replace(judged, flaws=(f"{words} {_advice(still)}", *judged.flaws))
    cause = Cause(
        kind=STANDING.kind,
        title=_title(still),
        share=min(still.still_ns / loop_ns, 1.0),
        wait_share=float("nan"),
        ns=still.still_ns,
        evidence={"still_ns": still.still_ns, "standing_workers": float(len(still.workers))},
        advice=_advice(still),
        remedy=CODE,
    )
    return replace(
        judged,
        kind=STANDSTILL,
        degree="",
        summary=words,
        causes=[cause],
        doubt="",
        ruled_out=(),
        as_large="",
    )


def _who(still: LoopStandstill) -> str:
    if not still.workers:
        return "the training step" if still.in_step else "the main process"
    if len(still.workers) == 1:
        return f"worker {still.workers[0]}"
    named = [str(worker) for worker in still.workers[:_MOST_NAMED]]
    more = len(still.workers) - len(named)
    last = f"{more} more" if more else named.pop()
    return f"workers {', '.join(named)} and {last}"


def _at(still: LoopStandstill) -> str:
    if still.at is not None:
        return f" at {plain(still.at.quoted)}"
    if still.in_step:
        return ""
    return f" in {plain(still.operation)}" if still.operation else " in the data set's own code"


def _title(still: LoopStandstill) -> str:
    at = f" at {plain(str(still.at))}" if still.at is not None else _at(still)
    return f"{_who(still)}, standing still{at}"


def _where(still: LoopStandstill) -> str:
    verb = "stand" if len(still.workers) > 1 else "stands"
    reason, _ = REASONS.get(still.reason, ("", ""))
    words = f"{_who(still)} {verb}{_at(still)}"
    if reason:
        words += f", and {_plural(reason) if len(still.workers) > 1 else reason}"
    return words + (f" ({plain(still.place)})" if still.place else "")


def _plural(reason: str) -> str:
    """Return the words of a reason for several: "waits for files" -> "wait for files"."""
    verb, _, rest = reason.partition(" ")
    return f"{verb.removesuffix('s')} {rest}".strip().replace(" its process", " their processes")


def _advice(still: LoopStandstill) -> str:
    if still.of_forked_threads and still.reason == "lock":
        return (
            "These workers were forked, and torch computes in several threads there, which hangs "
            "once the main process has computed in several as well (a limit of OpenMP). Let torch "
            "compute in one thread in a worker, as it does by default, or give the loader "
            "multiprocessing_context='spawn'."
        )
    if still.reason in _LOCKS and still.workers:
        return (
            "Find who holds the lock: its holder may wait for another one, may have ended, or held "
            "it when the workers were forked (multiprocessing_context='spawn' forks none). If it "
            "hangs again, run in another terminal: lotus top --stacks"
        )
    return (
        "Find what it waits for there, and give it a time limit. If it hangs again, run in another "
        "terminal: lotus top --stacks"
    )
