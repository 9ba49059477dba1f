"""Threads that lack cores: the evidence, in words, and when other programs are why."""

from dataclasses import replace

import numpy as np

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import MUCH_KEPT, Threads, allowed_cores
from lotus.analysis.machine.machine_readings import within_loops
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import Remedy, set_threads
from lotus.analysis.verdict.causes.cause_row import Charge, Evidence
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import duration, share

_HALF_A_CORE = 0.5
OTHERS_SHARE = (
    "Share of the cores' time that other programs used, or the hypervisor withheld, 0 to 1."
)
FEWER_IN_CODE = Remedy(changes={"threads": "fewer"})
CROWD_FACTS = {
    "run_delay_share": "Share of the time that its thread was ready to run without a core, 0 to 1.",
    "helper_share": "Share of the process's CPU time that its other threads used, 0 to 1.",
    "cores_used": "Cores that one such process used on average.",
}
LIMIT_FACTS = {
    "cores": "Cores that the program, or its workers where those have fewer, may use.",
    "machine_cores": "Cores of the machine.",
    "throttled_ns": "Time in which a CPU quota held threads back, all cores, nanoseconds.",
}


def crowd_evidence(threads: Threads) -> dict[str, float]:
    """Return the evidence of threads beyond the cores."""
    return {
        "run_delay_share": threads.delay_share,
        "helper_share": threads.helper_share,
        "cores_used": threads.cores,
    }


def limit_evidence(scope: Scope) -> dict[str, float]:
    """Return the evidence of the cores that the program may use and the machine has."""
    return {
        "cores": allowed_cores(scope),
        "machine_cores": scope.machine_cores,
        "throttled_ns": within_loops(scope, "throttled_ns"),
    }


def fewer_cores(charge: Charge) -> str:
    """Return how many cores the program may use, if the machine has more; else ""."""
    evidence = Evidence(charge.evidence)
    few = evidence["cores"] < evidence["machine_cores"]
    return f"{evidence['cores']:.3g}" if few else ""


def throttled(evidence: Evidence) -> str:
    """Return a sentence on how long a CPU quota held threads back; "" if none did."""
    if not evidence["throttled_ns"] > 0:  # NaN: of a program that was attached to
        return ""
    return (
        f" The CPU quota of its container or job throttled threads for "
        f"{duration(evidence['throttled_ns'])}, summed over the cores."
    )


def go_on(evidence: Evidence) -> bool:
    """Return True if threads of the workers, other than torch's, use much of the cores between
    batches as well."""
    return evidence["beside_cores"] >= MUCH_KEPT


def crowd_reason(evidence: Evidence) -> str:
    """Return a sentence with the numbers of `crowd_evidence`, and what is known of the threads."""
    own, whose = "", "torch, numpy's BLAS, OpenCV"
    if evidence.has("threads"):
        own = f"A worker has up to {evidence['threads']:.0f} threads"
        if evidence.has("torch_threads"):
            own += f", and torch computes in {evidence['torch_threads']:.0f} of them"
            if evidence["torch_threads"] == 1:
                whose = "numpy's BLAS, OpenCV or the like"
        own += ". "
    return (
        f"{own}The thread that does the work was ready to run but had no core for "
        f"{share(evidence['run_delay_share'])} of its time, while "
        f"{share(evidence['helper_share'])} of the CPU time went to its helper "
        + (
            "threads, which used "
            f"{evidence['beside_cores']:.1f} cores of all workers beside making batches as well."
            if go_on(evidence)
            else f"threads ({whose}), for which it waits."
        )
        + (
            f" Other programs used {share(evidence['others_share'])} of the cores."
            if evidence.has("others_share")
            else ""
        )
        + throttled(evidence)
    )


def with_fewer_threads(count: int, circumstances: Circumstances) -> Advice:
    """Return the advice to let the main process compute in `count` threads."""
    if circumstances.threads_are_set and circumstances.threads_set_at:
        return Advice(
            f"Compute in fewer threads: torch.set_num_threads({count}) instead of what "
            f"{circumstances.threads_set_at} sets; such a call overrides OMP_NUM_THREADS.",
            FEWER_IN_CODE.or_code(circumstances.threads_set_at),
        )
    if circumstances.threads_are_set:
        return Advice(
            f"Compute in fewer threads: torch uses {circumstances.torch_threads}, more than the "
            f"machine has cores, so something sets them. Call torch.set_num_threads({count}) there "
            "instead; such a call overrides OMP_NUM_THREADS.",
            FEWER_IN_CODE.or_code(),
        )
    if circumstances.library_threads_set:
        return Advice(
            f"Compute in fewer threads: call torch.set_num_threads({count}), or set {count} where "
            f"the program itself sets more ({circumstances.library_threads_set}), which overrides "
            "a variable of its environment.",
            FEWER_IN_CODE.or_code(circumstances.library_threads_set),
        )
    return Advice(
        f"Compute in fewer threads: start the program with OMP_NUM_THREADS={count} in its "
        f"environment, or call torch.set_num_threads({count}).",
        _one_thread(circumstances) if count == 1 else set_threads(count),
    )


def _one_thread(circumstances: Circumstances) -> Remedy:
    remedy = set_threads(1)
    if circumstances.replayed is None:
        return remedy
    return replace(remedy, expected=circumstances.replayed.with_one_thread())


def kept_by_others(ledger: Ledger) -> bool:
    """Return True if torch's threads and the workers would have enough cores but for others.

    Fewer threads would help beside other programs, and hurt where the cores are free.
    """
    scope = ledger.scope
    of_torch = max(int_column(scope.epochs, "torch_threads"), default=-1)
    idle, made, own, cpu, delay = (
        total(float_column(scope.batches, name))
        for name in ("idle_in_loop_ns", "fetch_ns", "cpu_ns", "process_cpu_ns", "run_delay_ns")
    )
    cpu = max(own, cpu)  # with helper threads, where that is known
    step_cpu = total(float_column(scope.waits, "step_cpu_ns"))
    # A worker needs no core while it sleeps. If others slow down the step, its workers have more
    # idle time, so their busy share is too low. The ratio of their CPU time to that of the step is
    # not.
    busy = ratio(cpu + delay, idle + made)
    shares = np.nan_to_num([busy, ratio(cpu, step_cpu * scope.num_workers)])
    workers = scope.num_workers * min(max(shares), 1.0)
    fits = of_torch > 0 and of_torch + workers <= scope.cores + _HALF_A_CORE
    return fits and ledger.batch_making.use.much_taken
