"""Too few cores for the program, or for its workers: by affinity or a CPU quota."""

import math
from collections.abc import Iterable

from lotus.analysis.machine.core_use import LEAST_DELAY, cores_are_few, workers_are_bound
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import Remedy
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.cores.crowding import (
    CROWD_FACTS,
    LIMIT_FACTS,
    limit_evidence,
    throttled,
)
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import plural, share


def _of_cores(ledger: Ledger) -> Iterable[Charge]:
    """Charge waits for the few cores that the program may use, if the machine has more."""
    scope, use = ledger.scope, ledger.use
    # Workers that are bound to few cores leave the others to the main process.
    bound = workers_are_bound(scope)
    delay, of_step = use.fetch.delay_share, ledger.step_short_ns
    made_late = ((cores_are_few(scope) and use.full) or bound) and delay >= LEAST_DELAY
    if made_late or of_step > 0:
        evidence = {"run_delay_share": delay, "bound_workers": float(bound)} | limit_evidence(scope)
        evidence["step_delay_share"] = use.step.delay_share if of_step > 0 else math.nan
        if bound:
            evidence["cores"] = scope.worker_cores
        ns = (ledger.take_share(delay) if made_late else 0.0) + of_step
        yield Charge(AFFINITY.kind, AFFINITY.title, ns, evidence, step_ns=of_step)


def _cores_title(charge: Charge, circumstances: Circumstances) -> str:
    cores, whole = (charge.evidence[name] for name in ("cores", "machine_cores"))
    who = "workers" if charge.evidence.get("bound_workers") else "program"
    if _has_quota(charge):
        return f"a CPU quota leaves the {who} {cores:.3g} of the machine's {plural(whole, 'core')}"
    return f"the {who} may use only {cores:.3g} of the machine's {plural(whole, 'core')}"


def _cores_reason(evidence: Evidence) -> str:
    text = (
        "The making of batches was ready to run but had no core for "
        f"{share(evidence['run_delay_share'])} of its time"
    )
    if evidence.has("step_delay_share"):
        text += f", the training step for {share(evidence['step_delay_share'])}"
    text += "." if evidence["bound_workers"] > 0 else ", while the program kept its cores busy."
    return text + throttled(evidence)


def _has_quota(charge: Charge) -> bool:
    """Return True if it is a CPU quota that leaves it few cores."""
    evidence = Evidence(charge.evidence)
    return evidence["throttled_ns"] > 0 and not evidence["bound_workers"] > 0


def _against_few_cores(charge: Charge, circumstances: Circumstances) -> Advice:
    also, workers = "", "Workers would share these cores."
    if circumstances.workers:
        also, workers = " (also in worker_init_fn)", "More workers will not help."
    if _has_quota(charge):
        return Advice(
            "Raise the CPU limit of the container, job or service (docker run --cpus, limits.cpu "
            "in Kubernetes, --cpus-per-task in Slurm, CPUQuota in systemd; cpu.max of the cgroup)."
            f" {workers}",
            Remedy(changes={"cores": "more", "num_workers": "not more"}),
        )
    return Advice(
        "Allow more cores: check os.sched_setaffinity, taskset, numactl, GOMP_CPU_AFFINITY and "
        f"KMP_AFFINITY{also}, libraries that pin the process when imported, and the CPU limit of "
        f"the container or job. {workers}",
        Remedy(changes={"cores": "more", "num_workers": "not more"}),
    )


AFFINITY = CauseRow(
    kind="affinity",
    title="too few cores for the program",
    full_title=_cores_title,
    charges=_of_cores,
    facts=LIMIT_FACTS
    | {
        "run_delay_share": CROWD_FACTS["run_delay_share"],
        "step_delay_share": "The same of the training step, where it lacked these cores, 0 to 1.",
        "bound_workers": "1 where it is the workers that have fewer, else 0.",
    },
    reason=_cores_reason,
    is_grave=lambda charge: charge.step_ns >= charge.ns / 2,
    advice=_against_few_cores,
)
