"""Another thread of the main process holds the interpreter lock (GIL): while a batch is ready, or
in the training step."""

from collections.abc import Iterable

from lotus.analysis.observations.looks import LOCK, Looks, python_threads
from lotus.analysis.observations.step_lock import StepLock
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE_NOT_WORKERS
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.loop_time.batch_making import BY_CHANCE, TOGETHER
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import amount, duration, plural, share


def _interpreter(ledger: Ledger) -> Iterable[Charge]:
    looks = ledger.batch_making.looks_of_main
    if not looks.are_enough:
        return
    evidence = _evidence(looks, python_threads(ledger.scope))
    title, ns = INTERPRETER.title, ledger.take_held(looks.shares[LOCK])
    # To receive a batch takes several turns of the interpreter, each of which it waits for again.
    ns += ledger.take_late_sending()
    if ledger.batch_making.stalls_held:
        stalls = sum(ledger.take_excess(kind).ns for kind in (BY_CHANCE, TOGETHER))
        ns += stalls
        if stalls > 0:
            evidence["stalls_ns"] = stalls
    step_ns, of_step = 0.0, ledger.batch_making.step_lock
    if of_step is not None:
        evidence["step_held_looks_share"] = of_step.share
        title = _with_function(title, of_step)
        step_ns = ledger.take_share_of_step(of_step.share)
    seen = looks.shares[LOCK], float(looks.count)
    yield Charge(INTERPRETER.kind, title, ns + step_ns, evidence, step_ns=step_ns, looks=seen)


def _with_function(title: str, lock: StepLock) -> str:
    return title.replace("process", f"process, in {lock.running},", 1) if lock.running else title


def _evidence(looks: Looks, threads: int) -> dict[str, float]:
    return {
        "held_looks_share": looks.shares.get(LOCK, 0.0),
        "held_looks": float(looks.count),
        "python_threads": float(threads),
    }


def _reason(evidence: Evidence) -> str:
    return (
        f"In {share(evidence['held_looks_share'])} of {amount(evidence['held_looks'])} "
        "observations the main thread was waiting for a lock of its own process, and the program "
        f"had {plural(evidence['python_threads'], 'other Python thread')}."
        + _reason_of_stalls(evidence)
        + _reason_of_step(evidence)
    )


def _reason_of_stalls(evidence: Evidence) -> str:
    if not evidence.has("stalls_ns"):
        return ""
    return (
        f" Samples that were slow by chance add {duration(evidence['stalls_ns'])}: the other "
        "thread keeps the lock for 5 ms at a time."
    )


def _reason_of_step(evidence: Evidence) -> str:
    if not evidence.has("step_held_looks_share"):
        return " The training step needs the GIL as well and may also be slowed down."
    return (
        " During the training step it was waiting for one in "
        f"{share(evidence['step_held_looks_share'])} of observations, so the step is slowed down "
        "too."
    )


def _of_step(ledger: Ledger) -> Iterable[Charge]:
    lock = ledger.batch_making.step_lock
    if lock is None or ledger.batch_making.looks_of_main.are_enough:  # `_interpreter` has it
        return
    evidence = {
        "step_held_looks_share": lock.share,
        "step_looks": float(lock.looks),
    }
    if lock.threads is not None:
        evidence["python_threads"] = float(lock.threads)
    title = _with_function(STEP_HELD.title, lock)
    ns = ledger.take_share_of_step(lock.share)
    yield Charge(STEP_HELD.kind, title, ns, evidence, looks=(lock.share, float(lock.looks)))


def _reason_in_step(evidence: Evidence) -> str:
    others = "another Python thread"
    if evidence.has("python_threads"):
        others = plural(evidence["python_threads"], "other Python thread")
    return (
        f"In {share(evidence['step_held_looks_share'])} of {amount(evidence['step_looks'])} "
        "observations of the training step, the main thread was waiting for a lock of its own "
        f"process, while {others} of the program ran. What a step takes longer because of it "
        "may be more."
    )


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    advice = (
        "Only one thread of a process runs Python code at a time: let the other thread do less, or "
        "move its work to another process."
    )
    if not circumstances.workers:
        return Advice(advice)
    return Advice(f"{advice} More workers will not help.", CODE_NOT_WORKERS)


_FACTS = {
    "step_held_looks_share": "Share of observations of the training step at a lock, 0 to 1.",
    "python_threads": "Python threads that the program itself had beside its main thread.",
}

STEP_HELD = CauseRow(
    kind="step-held",
    title="another thread of the main process holds the interpreter lock (GIL) during the step",
    part=cause_row.STEP,
    charges=_of_step,
    facts={"step_looks": "Number of observations of the training step."} | _FACTS,
    reason=_reason_in_step,
    advice=_advice,
    is_grave=lambda charge: True,
)

INTERPRETER = CauseRow(
    kind="interpreter",
    title="another thread of the main process holds the interpreter lock (GIL)",
    charges=_interpreter,
    facts={
        "held_looks_share": "Share of observations of the main thread at a lock, 0 to 1.",
        "held_looks": "Number of observations of the main thread.",
        "stalls_ns": "Time of samples that were slow by chance beyond usual ones, nanoseconds.",
    }
    | _FACTS,
    reason=_reason,
    advice=_advice,
    is_grave=lambda charge: charge.step_ns > 0,
)
