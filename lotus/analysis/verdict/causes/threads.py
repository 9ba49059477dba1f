"""Threads beyond the cores: those of the workers, and those of the training step."""

import math
from collections.abc import Iterable

import numpy as np

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import (
    LEAST_DELAY,
    LEAST_OTHERS,
    MUCH_KEPT,
    Threads,
    allowed_cores,
    cores_are_few,
    workers_are_bound,
)
from lotus.analysis.machine.machine_readings import within_loops
from lotus.analysis.observations.looks import LOCK, looks_of_makers
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import NOTHING, Remedy, set_threads
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import duration, plural, share

_HALF_A_CORE = 0.5
# Of numpy and SciPy as pip installs them. It leaves the threads of torch, and so of the step.
_OF_NUMPY = "OPENBLAS_NUM_THREADS"
_OTHERS_SHARE = (
    "Share of the cores' time that other programs used, or the hypervisor withheld, 0 to 1."
)
_MOSTLY = 0.5  # of what others had of the cores
# Threads that also run between batches: those of the data set, or a BLAS that waits busily.
_GO_ON = (
    "Stop threads that worker_init_fn, the data set or a library keeps running in the workers: "
    "`lotus attach PID` shows what they do. If there are none, let each worker compute in one "
    "thread. "
)
_FEWER_IN_CODE = Remedy(changes={"threads": "fewer"})
_FACTS = {
    "run_delay_share": "Share of the time that its thread was ready to run without a core, 0 to 1.",
    "helper_share": "Share of the process's CPU time that its other threads used, 0 to 1.",
    "cores_used": "Cores that one such process used on average.",
}
_LIMITS = {
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


def _limits(scope: Scope) -> dict[str, float]:
    """Return the evidence of the cores that the program may use and the machine has."""
    return {
        "cores": allowed_cores(scope),
        "machine_cores": scope.machine_cores,
        "throttled_ns": within_loops(scope, "throttled_ns"),
    }


def _allowed(charge: Charge) -> str:
    """Return how many cores the program may use, if the machine has more; else ""."""
    evidence = Evidence(charge.evidence)
    few = evidence["cores"] < evidence["machine_cores"]
    return f"{evidence['cores']:.3g}" if few else ""


def _throttled(evidence: Evidence) -> str:
    if not evidence["throttled_ns"] > 0:  # NaN: of a program that was attached to
        return ""
    return (
        f" The CPU quota of its container or job throttled threads for "
        f"{duration(evidence['throttled_ns'])}, summed over the cores."
    )


def _of_workers(ledger: Ledger) -> Iterable[Charge]:
    threads, of_main = ledger.use.fetch, ledger.scope.num_workers == 0
    if allowed_cores(ledger.scope) < 1:
        return  # one thread would lack a core as well
    if threads.crowded and not (of_main and ledger.batch_making.looks_of_main.are_enough):
        evidence = crowd_evidence(threads) | _limits(ledger.scope)
        workers = ledger.scope.workers
        for name in () if of_main else ("threads", "torch_threads"):
            count = max(int_column(workers, name), default=-1)
            evidence[name] = float(count) if count > 0 else math.nan
        lost = threads.lost_share
        if evidence.get("torch_threads", 0.0) > 1:
            lost = max(lost, _lost_at_locks(threads, ledger.scope))
        ns = ledger.take_share(lost) + ledger.crowded_first_ns + ledger.sent_late
        ledger.lost_to_threads = lost
        # Of torch's own threads, these are known to wait busily for more work.
        alone = evidence.get("torch_threads") == 1
        evidence["beside_cores"] = ledger.use.beside_cores if alone else math.nan
        # Fewer threads help beside other programs, which is no reason to call the loop input-bound.
        taken = ns if of_main and _kept_by_others(ledger) else 0.0
        evidence["others_share"] = ledger.use.others_share if taken else math.nan
        yield Charge(WORKER_THREADS.kind, WORKER_THREADS.title, ns, evidence, taken_ns=taken)


def _lost_at_locks(threads: Threads, scope: Scope) -> float:
    """Return the part of the time, 0 to 1, without a core or at locks of the process.

    The thread that makes batches waits at these for torch's other threads, which may lack a core
    for longer than it does.
    """
    looks = looks_of_makers(scope)
    at_locks = ratio(looks.shares.get(LOCK, 0.0), looks.blocked_share) if looks.are_enough else 0.0
    return min(threads.delay_share + threads.blocked_share * at_locks, 1.0)


def _not_torch(charge: Charge, circumstances: Circumstances) -> bool:
    """Return True if the workers' threads are of another library: torch computes in one there."""
    return circumstances.workers > 0 and charge.evidence.get("torch_threads", math.nan) == 1


def _go_on(evidence: Evidence) -> bool:
    """Return True if threads of the workers, other than torch's, use much of the cores between
    batches as well."""
    return evidence["beside_cores"] >= MUCH_KEPT


def _workers_title(charge: Charge, circumstances: Circumstances) -> str:
    allowed = _allowed(charge)
    cores = "with too few cores for them" + (f" (the program may use {allowed})" if allowed else "")
    if circumstances.workers == 0:
        return f"making batches in several threads, {cores}"
    if _go_on(Evidence(charge.evidence)):
        return f"threads that the workers also run between batches, {cores}"
    if _not_torch(charge, circumstances):
        return (
            "several threads in each worker, of numpy's BLAS or another library than torch, "
            f"{cores}"
        )
    return f"several threads in each worker, {cores}"


def _reason(evidence: Evidence) -> str:
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
            if _go_on(evidence)
            else f"threads ({whose}), for which it waits."
        )
        + (
            f" Other programs used {share(evidence['others_share'])} of the cores."
            if evidence.has("others_share")
            else ""
        )
        + _throttled(evidence)
    )


def _against_workers(charge: Charge, circumstances: Circumstances) -> Advice:
    if circumstances.workers == 0:
        fewer = _with_fewer(circumstances.use.fetch.affordable, circumstances)
        return Advice(
            f"{fewer.text} Or set num_workers to 1 or more: a worker computes in one thread, if "
            "there is a core left for it."
            + (
                " Where the cores are free, measure again: all threads may be faster there."
                if charge.taken_ns
                else ""
            ),
            fewer.remedy.with_changes({"num_workers": "more"}),
        )
    if _not_torch(charge, circumstances) and circumstances.library_threads_set:
        place = circumstances.library_threads_set
        return Advice(
            f"Let each worker compute in one thread: the program itself gives a library more "
            f"({place}), which overrides a variable of its environment: set 1 there. Torch uses "
            "one thread in a worker.",
            _FEWER_IN_CODE.or_code(place),
        )
    if _not_torch(charge, circumstances):
        first = "Let each worker compute in one thread. "
        return Advice(
            (_GO_ON if _go_on(Evidence(charge.evidence)) else first)
            + "Torch uses one there, so the others belong to another library, most often numpy's "
            f"BLAS, which uses all cores: start the program with {_OF_NUMPY}=1 in its environment "
            "(MKL_NUM_THREADS=1 if numpy is built with MKL; the training step may then have one "
            "thread too). Other libraries: cv2.setNumThreads(0), NUMEXPR_NUM_THREADS=1.",
            set_threads(1, _OF_NUMPY),
        )
    return Advice(
        "Let each worker compute in one thread: torch.set_num_threads(1), cv2.setNumThreads(0) or "
        f"OMP_NUM_THREADS=1 if worker_init_fn or the data set sets more"
        f"{f' (see {circumstances.threads_set_at})' if circumstances.threads_set_at else ''}, and "
        f"{_OF_NUMPY}=1 for numpy's BLAS, which uses all cores by default.",
        _FEWER_IN_CODE.or_code(circumstances.threads_set_at),
    )


def _with_fewer(count: int, circumstances: Circumstances) -> Advice:
    if circumstances.threads_are_set and circumstances.threads_set_at:
        return Advice(
            f"Compute in fewer threads: torch.set_num_threads({count}) instead of what "
            f"{circumstances.threads_set_at} sets; such a call overrides OMP_NUM_THREADS.",
            _FEWER_IN_CODE.or_code(circumstances.threads_set_at),
        )
    if circumstances.threads_are_set:
        return Advice(
            f"Compute in fewer threads: torch uses {circumstances.torch_threads}, more than the "
            f"machine has cores, so something sets them. Call torch.set_num_threads({count}) there "
            "instead; such a call overrides OMP_NUM_THREADS.",
            _FEWER_IN_CODE.or_code(),
        )
    if circumstances.library_threads_set:
        return Advice(
            f"Compute in fewer threads: call torch.set_num_threads({count}), or set {count} where "
            f"the program itself sets more ({circumstances.library_threads_set}), which overrides "
            "a variable of its environment.",
            _FEWER_IN_CODE.or_code(circumstances.library_threads_set),
        )
    return Advice(
        f"Compute in fewer threads: start the program with OMP_NUM_THREADS={count} in its "
        f"environment, or call torch.set_num_threads({count}).",
        set_threads(count),
    )


WORKER_THREADS = CauseRow(
    kind="worker-threads",
    title="threads beyond the cores, in making batches",
    full_title=_workers_title,
    charges=_of_workers,
    facts=_FACTS
    | _LIMITS
    | {
        "threads": "Threads of a worker's process after its first batch, at most.",
        "torch_threads": "Threads in which torch computes in a worker, at most.",
        "beside_cores": "Cores that workers used for something else than making batches.",
        "others_share": _OTHERS_SHARE,
    },
    reason=_reason,
    advice=_against_workers,
)


def _of_cores(ledger: Ledger) -> Iterable[Charge]:
    """Charge waits for the few cores that the program may use, if the machine has more."""
    scope, use = ledger.scope, ledger.use
    # Workers that are bound to few cores leave the others to the main process.
    bound = workers_are_bound(scope)
    delay, of_step = use.fetch.delay_share, ledger.step_short_ns
    made_late = ((cores_are_few(scope) and use.full) or bound) and delay >= LEAST_DELAY
    if made_late or of_step > 0:
        evidence = {"run_delay_share": delay, "bound_workers": float(bound)} | _limits(scope)
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
    return text + _throttled(evidence)


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
    facts=_LIMITS
    | {
        "run_delay_share": _FACTS["run_delay_share"],
        "step_delay_share": "The same of the training step, where it lacked these cores, 0 to 1.",
        "bound_workers": "1 where it is the workers that have fewer, else 0.",
    },
    reason=_cores_reason,
    is_grave=lambda charge: charge.step_ns >= charge.ns / 2,
    advice=_against_few_cores,
)


def _of_others(ledger: Ledger) -> Iterable[Charge]:
    """Charge waits in which the maker or taker of the batch was ready, and others had the cores."""
    use, ns = ledger.use, ledger.waits_without_core
    if use.rivals:
        # Threads that wait for each other do so because one of them has no core: charged once.
        beyond = max(use.fetch.delay_share - ledger.lost_to_threads, 0.0)
        left = ratio(beyond, 1.0 - ledger.lost_to_threads) if ledger.lost_to_threads < 1 else 0.0
        ledger.delay_share = min(left, 1.0)
        ns += ledger.take_excess_without_core()
        ns += ledger.take_share(ledger.delay_share)
    if use.rivals or ns > 0:
        evidence = {
            "run_delay_share": use.fetch.delay_share,
            "others_share": use.others_share,
            "stolen_share": use.stolen_share if use.much_stolen else math.nan,
        }
        yield Charge(OTHERS.kind, OTHERS.title, ns, evidence)


def _is_stolen(charge: Charge) -> bool:
    """Return True if it was mostly the hypervisor that kept the program from the cores."""
    stolen, others = (charge.evidence.get(f"{who}_share", math.nan) for who in ("stolen", "others"))
    return stolen >= _MOSTLY * others


def _others_title(charge: Charge, circumstances: Circumstances) -> str:
    return "the hypervisor withholds cores (steal time)" if _is_stolen(charge) else OTHERS.title


def _against_others(charge: Charge, circumstances: Circumstances) -> Advice:
    if _is_stolen(charge):
        text = "Measure again when the host has free cores, or on a machine that does not share its"
        return Advice(f"{text} cores; no loader setting helps.", NOTHING)
    return Advice(
        "Measure again when the cores are free, or give the program its own cores; no loader "
        "setting helps.",
        NOTHING,
    )


def _others_reason(evidence: Evidence) -> str:
    text = (
        "The making of batches was ready to run but had no core for "
        f"{share(evidence['run_delay_share'])} of its time, and the program did not keep the cores "
        "busy itself"
    )
    if evidence["run_delay_share"] < LEAST_DELAY:
        text = (
            "Batches that were ready arrived later than their bytes and the CPU time of receiving "
            "them account for"
        )
    if evidence.has("others_share"):
        stolen = evidence["stolen_share"] if evidence.has("stolen_share") else 0.0
        programs = max(evidence["others_share"] - stolen, 0.0)
        text += f": other programs used {share(programs)} of them"
        text += f", and the hypervisor withheld {share(stolen)}" if stolen else ""
    return text + "."


OTHERS = CauseRow(
    kind="other-programs",
    title="other programs use the cores",
    full_title=_others_title,
    charges=_of_others,
    facts={
        "run_delay_share": _FACTS["run_delay_share"],
        "others_share": _OTHERS_SHARE,
        "stolen_share": "Part of it that the hypervisor withheld (steal), 0 to 1.",
    },
    reason=_others_reason,
    advice=_against_others,
)


def _of_step(ledger: Ledger) -> Iterable[Charge]:
    threads = ledger.use.step
    if _kept_by_others(ledger):
        return
    # Threads that hold the interpreter lock are the program's own, not those of a library.
    are_own = (
        ledger.batch_making.looks_of_main.are_enough or ledger.batch_making.step_lock is not None
    )
    if threads.crowded and not are_own:
        lost = ledger.step_left_ns * threads.lost_share
        ledger.step_left_ns -= lost
        if allowed_cores(ledger.scope) < 1:  # one thread would lack a core as well
            ledger.step_short_ns += lost
            return
        evidence = crowd_evidence(threads) | _limits(ledger.scope)
        of_torch = max(int_column(ledger.scope.epochs, "torch_threads"), default=-1)
        evidence["main_torch_threads"] = float(of_torch) if of_torch > 0 else math.nan
        others = ledger.use.others_share
        evidence["others_share"] = others if others >= LEAST_OTHERS else math.nan
        taken = lost * ledger.use.others_part
        yield Charge(STEP_THREADS.kind, STEP_THREADS.title, lost, evidence, taken_ns=taken)


def _kept_by_others(ledger: Ledger) -> bool:
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


def _step_title(charge: Charge, circumstances: Circumstances) -> str:
    workers = plural(circumstances.workers, "worker")
    rivals = f"they and the {workers} need" if circumstances.workers else "they need"
    allowed = _allowed(charge)
    cores = f"the {allowed} that the program may use" if allowed else "there are"
    return f"the training step's threads: {rivals} more cores than {cores}"


def _more_than_cores(charge: Charge) -> bool:
    """Return True if torch was told to compute in more threads than the machine has cores."""
    threads, cores = (
        charge.evidence.get(name, math.nan) for name in ("main_torch_threads", "machine_cores")
    )
    return threads > cores


def _against_step(charge: Charge, circumstances: Circumstances) -> Advice:
    allowed = _allowed(charge)
    more = (
        f" Or allow the program more cores than {allowed}: the CPU limit of its container or job, "
        "or taskset, holds it to them."
    )
    fewer = _with_fewer(circumstances.use.step.affordable, circumstances)
    return fewer.before(more) if allowed else fewer


STEP_THREADS = CauseRow(
    kind="step-threads",
    title="the training step's threads, beyond the cores",
    full_title=_step_title,
    part=cause_row.STEP,
    charges=_of_step,
    facts=_FACTS
    | _LIMITS
    | {
        "main_torch_threads": "Threads in which torch computes in the main process, at most.",
        "others_share": _OTHERS_SHARE,
    },
    reason=_reason,
    advice=_against_step,
    is_grave=_more_than_cores,
)
