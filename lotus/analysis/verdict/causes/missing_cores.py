"""What keeps a training step from the cores, as the summary of a verdict has it."""

from lotus.analysis.verdict.causes.step_delay import STEP_DELAY
from lotus.analysis.verdict.causes.threads import STEP_THREADS

KINDS = (STEP_THREADS.kind, STEP_DELAY.kind)


def clause(kind: str, title: str) -> str:
    """Return why a step lacks cores, by its first cause; "" for causes of other kinds."""
    if kind == STEP_THREADS.kind:
        return "because the training step's threads have fewer cores than they need"
    if kind == STEP_DELAY.kind:
        users = title.rpartition(", which ")[2]  # "the workers use"
        return f"because {users} the cores that the training step needs"
    return ""
