"""The clause of a verdict's summary that says what keeps a training step from the cores."""

from collections.abc import Mapping

from lotus.analysis.verdict.causes.cause_row import LOST_STEPS, Evidence
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.step_delay import STEP_DELAY, who_has_the_cores
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS

KINDS = (STEP_THREADS.kind, STEP_DELAY.kind, AFFINITY.kind)


def clause(kind: str, evidence: Mapping[str, float]) -> str:
    """Return why a step lacks cores, by its first cause; "" for causes of other kinds."""
    if LOST_STEPS in evidence:
        return "because the making of batches uses cores that the training step needs"
    if kind == STEP_THREADS.kind:
        return "because the training step's threads have fewer cores than they need"
    if kind == AFFINITY.kind:
        return f"because the program may use only {evidence['cores']:.3g} of the machine's cores"
    if kind == STEP_DELAY.kind:
        users = who_has_the_cores(Evidence(evidence))
        return f"because {users} use the cores that the training step needs"
    return ""
