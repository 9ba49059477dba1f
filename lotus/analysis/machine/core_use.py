"""The use of the cores while a loader was iterated: by its own threads, or by other programs.

From what the kernel counts for each batch, `next` and training step: time on a core, time ready to
run without one, and the time on cores of all threads of the process.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import LEAST_HELPERS
from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import float_column, int_column, median, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.cpu_sums import SPIN_NS, workers_ns
from lotus.analysis.machine.machine_readings import (
    core_time,
    growth,
    stolen_share,
    within_loops,
)
from lotus.common.numbers.array_types import Bools, Floats

# Waiting for a core for less than this share of the time is ordinary: every machine has a little.
LEAST_DELAY = 0.1
# Of a core, or a batch: the feeder threads of workers that mostly wait use less. Where other
# programs have the cores, a thread that computes uses little of one, but as much a batch.
_LEAST_HELPER_CORES, _LEAST_HELPER_NS = 0.05, 5e6
LEAST_OTHERS = 0.1  # of the cores' time
_LEAST_STOLEN = 0.03  # of the cores' time
_LEAST_NS = 1e9  # the machine's readings are about that far apart, in clock ticks of 10 ms
_MOST_OF_IT = 0.8
_MUCH_OF_RUN = 0.2  # of its time, in which loops are: what is known of all of it stands for them
# Of the cores' time: if others have more, this changes what is said first, and the advice.
_MUCH_OTHERS = 0.25
MUCH_KEPT = 0.5  # cores that are used for something else than making batches
# The cores are full where the program itself uses more than this share of them.
FULL = 0.7
_FAIR = 0.5  # of the cores, at least: other programs give way to what waits for a core, too


@dataclass(frozen=True)
class Threads:
    """Threads that made batches or took training steps. Shares are 0 to 1; NaN: not measured."""

    delay_share: float  # of the time: ready to run, without a core
    blocked_share: float  # of the time: waiting for something else
    helper_share: float  # of the process's CPU time: of its other threads
    cores: float  # that one process used, on average
    helper_ns: float = math.nan  # CPU time of its other threads, a batch or step

    @property
    def crowded(self) -> bool:
        """True if several threads of a process compute, and cores are missing."""
        helpers = self.helper_share >= LEAST_HELPERS
        much = self.helper_share * self.cores >= _LEAST_HELPER_CORES
        much = much or self.helper_ns >= _LEAST_HELPER_NS
        return helpers and much and self.delay_share >= LEAST_DELAY

    @property
    def lost_share(self) -> float:
        """The part of the time, 0 to 1, that missing cores cost; an estimate.

        How long the thread itself had no core is measured. Its helpers lack one for as long, and it
        is blocked until they are done: as much is added, at most the time in which it was blocked.
        """
        return min(self.delay_share + min(self.blocked_share, self.delay_share), 1.0)

    def with_cores(self, part: float) -> "Threads":
        """Return the same with cores for this part of the time without one."""
        took = 1.0 - part * self.delay_share
        return replace(
            self,
            delay_share=ratio((1.0 - part) * self.delay_share, took),
            blocked_share=ratio(self.blocked_share, took),
            cores=ratio(self.cores, took),
        )

    @property
    def affordable(self) -> int:
        """The number of threads that the cores of one process are enough for; at least 1."""
        return max(1, int(self.cores)) if math.isfinite(self.cores) else 1


@dataclass(frozen=True)
class CoreUse:
    """The cores during a loop, as shares of all cores' time, 0 to 1; NaN: not measured.

    `own_share`: used by the program. `others_share`: used by other programs, or taken from this
    virtual machine; where the loops could not be read by themselves, that of all of the run, or at
    most. `stolen_share`: taken from this virtual machine; 0.0 where that is not known.
    `children_share`: CPU time of processes that workers started, as a share of that in which
    batches were made; 0.0 where that is not known.
    """

    fetch: Threads
    step: Threads
    own_share: float
    others_share: float
    children_share: float = 0.0
    stolen_share: float = 0.0
    used_share: float = math.nan  # by anybody
    beside_cores: float = 0.0  # that workers used for something else; 0.0 where that is not known
    kept_cores: float = 0.0  # that processes beside the workers used; 0.0 where that is not known
    workers_full: bool = False  # workers keep the few cores busy that they may use

    @property
    def all_used(self) -> bool:
        """True if the cores are kept busy by whatever programs."""
        return self.used_share > FULL

    @property
    def full(self) -> bool:
        """True if the program itself keeps its cores busy."""
        return self.own_share > FULL

    @property
    def others(self) -> bool:
        """True if other programs use the cores, or threads wait for idle ones.

        A thread that wakes another one may wait for it then, also where both have a core at once.
        """
        return self.others_share >= LEAST_OTHERS or self.rivals

    @property
    def kept(self) -> bool:
        """True if processes of the program that make no batches use much of the cores."""
        return self.kept_cores >= MUCH_KEPT

    @property
    def much_taken(self) -> bool:
        """True if other programs were seen to use much of the cores."""
        return self.others_share >= _MUCH_OTHERS

    @property
    def much_stolen(self) -> bool:
        """True if the hypervisor withheld enough of the cores' time to be told of."""
        return self.stolen_share >= _LEAST_STOLEN

    @property
    def programs_share(self) -> float:
        """The part of `others_share` that programs of this machine used; NaN: not measured."""
        return max(self.others_share - self.stolen_share, 0.0)

    @property
    def others_part(self) -> float:
        """The part of a wait for a core that is due to other programs: as they used the cores.

        0.0 if the making of batches waited for none.
        """
        return self.others_part_of_step if self.rivals else 0.0

    @property
    def others_part_of_step(self) -> float:
        """The same, even if the making of batches waits for no core; 0.0 if it is not known."""
        used = self.own_share + self.others_share
        few = not self.others_share >= LEAST_OTHERS
        return 0.0 if self.full or few or not used > 0 else self.others_share / used

    @property
    def others_part_of_making(self) -> float:
        """The same of the making of batches, however little that waits for a core."""
        return 0.0 if self.workers_full else self.others_part_of_step

    @property
    def without_others(self) -> "CoreUse":
        """The same if other programs had left the cores alone."""
        fetch = self.fetch.with_cores(self.others_part_of_making)
        step = self.step.with_cores(self.others_part_of_step)
        return replace(self, fetch=fetch, step=step, others_share=0.0, stolen_share=0.0)

    @property
    def rivals(self) -> bool:
        """True if threads waited for cores that the program itself did not keep busy.

        Not if the use by others was measured and was little: then the program was in its own way.
        """
        alone = self.others_share < LEAST_OTHERS or self.full or self.workers_full
        return not alone and self.fetch.delay_share >= LEAST_DELAY


def allowed_cores(scope: Scope) -> float:
    """Return how many cores the program may use, all of its ranks together; NaN: not known."""
    return scope.cores * max(len(scope.ranks), 1)


def cores_are_few(scope: Scope) -> bool:
    """Return True if the program may use only a part of the machine's cores."""
    return allowed_cores(scope) < scope.machine_cores


def workers_are_bound(scope: Scope) -> bool:
    """Return True if workers may use fewer cores than the program, and than they are."""
    few = 0 < scope.worker_cores < min(scope.cores, scope.num_workers)
    return few and len(scope.ranks) == 1


def left_cores(scope: Scope, use: CoreUse) -> float:
    """Return how many cores there are for the program: its fair part, or more that others leave.

    All of them if it is not known what others use.
    """
    left = scope.cores
    if math.isfinite(use.others_share):
        left = scope.cores * (1.0 - use.others_share)
    elif math.isfinite(idle := _idle_cores(scope) + scope.cores * use.own_share):
        left = min(idle, scope.cores)
    return max(left, scope.cores * _FAIR)


def core_use(scope: Scope) -> CoreUse:
    """Return the use of the cores during the loops of a loader."""
    batches, waits = scope.batches, scope.waits
    # A worker's feeder thread, which sends a batch while the next one is made, is no helper. Its
    # time is taken from the median: it is longer where the thread had no core.
    sending = len(batches) * sum(
        np.nan_to_num(median(float_column(batches, name))) for name in ("pickle_ns", "write_ns")
    )
    of_fetch, of_step = _columns("fetch_ns", ""), _columns("step_ns", "step_")
    step = _threads(*(float_column(waits, name) for name in of_step))
    in_workers = int_column(batches, "worker") >= 0
    spinning = SPIN_NS * int((~in_workers).sum()) if step.helper_share >= LEAST_HELPERS else 0.0
    fetch = _threads(
        *(float_column(batches, name) for name in of_fetch), beside_ns=sending + spinning
    )
    made = float_column(batches, "process_cpu_ns")[in_workers]
    # Of a partly recorded loop the mean stands for all batches.
    workers = _mean(made) * len(waits) if made.size else 0.0
    main = sum(total(float_column(waits, f"{part}_process_cpu_ns")) for part in ("wait", "step"))
    known = np.isfinite(float_column(waits, "wait_process_cpu_ns")).any()
    loop = loop_times(scope.epochs, waits)
    children = _of_children(scope)
    beside = _beside_batches(scope, sending, loop)
    kept = _of_kept_children(scope, loop)
    loop_ns, used_ns = (
        total(float_column(loop, "loop_ns")),
        workers + main + children + beside + kept,
    )
    own = ratio(used_ns, loop_ns * scope.cores) if known else math.nan
    used, most = _used_share(scope, loop), _most_of_others(scope, loop)
    others = max(min(used - own, most), 0.0)
    if math.isnan(used):  # the loops cannot be read by themselves
        others = most if most < LEAST_OTHERS else _others_of_run(scope, loop)
    return CoreUse(
        fetch=fetch,
        step=step,
        own_share=own,
        others_share=others,
        children_share=ratio(children, children + total(float_column(batches, "cpu_ns"))),
        stolen_share=stolen_share(scope),
        used_share=used,
        beside_cores=ratio(beside, loop_ns),
        kept_cores=ratio(kept, loop_ns),
        workers_full=workers_are_bound(scope) and workers > FULL * scope.worker_cores * loop_ns,
    )


def _beside_batches(scope: Scope, sending_ns: float, loop: pd.DataFrame) -> float:
    """Return the CPU time of workers beside the making and sending of batches, in the loops, ns.

    Of threads that a worker keeps running. Known if the launcher read a worker twice. Workers that
    were not read are taken to use as much; those of loaders that the program keeps go on beside.
    """
    readings = scope.children
    wall, used = float_column(readings, "own_ns"), float_column(readings, "own_cpu_ns")
    mine = (int_column(readings, "worker") >= 0) & (wall > 0) & (used >= 0)
    loop_ns = total(float_column(loop, "loop_ns"))
    if not mine.any() or not loop_ns > 0:
        return 0.0
    made = workers_ns(scope) + sending_ns
    cores = total(used[mine] / wall[mine]) * ratio(scope.num_workers, int(mine.sum()))
    span = float(float_column(loop, "end_ns").max() - float_column(loop, "start_ns").min())
    if total(wall[mine]) > scope.num_workers * span:
        cores = max(cores, ratio(total(used[mine]), span))
    return max(cores - made / loop_ns, 0.0) * loop_ns


def _of_children(scope: Scope) -> float:
    """Return the CPU time of processes that workers started, ns."""
    used = float_column(scope.children, "cpu_ns")[int_column(scope.children, "worker") >= 0]
    return total(used[used > 0])


def _of_kept_children(scope: Scope, loop: pd.DataFrame) -> float:
    """Return the CPU time, in the loops, of kept processes that make no batches, ns."""
    readings, cores = scope.children, 0.0
    wall, used = float_column(readings, "own_ns"), float_column(readings, "kept_cpu_ns")
    in_worker = int_column(readings, "worker") >= 0
    for mine, count in ((~in_worker, 1), (in_worker, scope.num_workers)):
        known = mine & (wall > 0) & (used >= 0)
        if known.any():
            cores += total(used[known] / wall[known]) * count / int(known.sum())
    return cores * total(float_column(loop, "loop_ns"))


def _most_of_others(scope: Scope, loop: pd.DataFrame) -> float:
    """Return others' use in the run, as a share of the cores' time in the loops; inf: unknown.

    What the program uses between and around its loops, as to start workers, is not others'.
    """
    machine, spent = scope.machine, scope.program_cpu_ns
    if math.isnan(spent) or len(scope.ranks) > 1 or _span(machine, loop) is None:
        return math.inf
    used, _ = core_time(machine)
    cores_ns = total(float_column(loop, "loop_ns")) * scope.cores
    return max(ratio(float(used[-1] - used[0]) - spent, cores_ns), 0.0)


def _others_of_run(scope: Scope, loop: pd.DataFrame) -> float:
    """Return the share of the cores' time that others used in all of the run; NaN: not known.

    It stands for that in the loops where these are much of the run, as where a validation comes
    between them.
    """
    machine = scope.machine
    loop_ns = total(float_column(loop, "loop_ns"))
    if _most_of_others(scope, loop) == math.inf or loop_ns < _LEAST_NS:
        return math.nan
    times, (used, whole) = float_column(machine, "time_ns"), core_time(machine)
    run_ns = float(times[-1] - times[0])
    if loop_ns < _MUCH_OF_RUN * run_ns or whole[-1] - whole[0] > run_ns * (scope.cores + 0.5):
        return math.nan
    others = float(used[-1] - used[0]) - scope.program_cpu_ns
    return min(max(ratio(others, float(whole[-1] - whole[0])), 0.0), 1.0)


def _used_share(scope: Scope, loop: pd.DataFrame) -> float:
    """Return the share of the cores' time that anybody used from the first loop to the last one.

    NaN if the machine was not read in that time, if the loops are too short for its clock ticks, or
    if the program did much else in between.
    """
    machine, span = scope.machine, _span(scope.machine, loop)
    if span is None or len(scope.ranks) > 1:
        return math.nan
    begin, last = span
    if (
        total(float_column(loop, "loop_ns")) < _MOST_OF_IT * (last - begin)
        or last - begin < _LEAST_NS
    ):
        return math.nan
    times = float_column(machine, "time_ns")
    used, whole = core_time(machine)
    if whole[-1] - whole[0] > (times[-1] - times[0]) * (scope.cores + 0.5):
        return math.nan  # these are not the cores that the program was bound to
    span_ns = np.array([begin]), np.array([last])
    return ratio(growth(machine, used, *span_ns), growth(machine, whole, *span_ns))


def _idle_cores(scope: Scope) -> float:
    """Return how many cores were idle while the loader was iterated; NaN: not known.

    This is known also where the program does much else between its epochs, and what others use is
    not.
    """
    epochs = scope.epochs
    if len(scope.ranks) > 1 or not float_column(scope.machine, "idle_ns").any():
        return math.nan
    spent = np.nansum(float_column(epochs, "end_ns") - float_column(epochs, "start_ns"))
    if not spent >= _LEAST_NS:
        return math.nan
    return min(within_loops(scope, "idle_ns") / float(spent), scope.cores)


def _span(machine: pd.DataFrame, loop: pd.DataFrame) -> tuple[float, float] | None:
    """Return when the first loop began and the last one ended; None: no readings around.

    A loop that was broken off, as by a signal, ends with its last batch.
    """
    start, end = float_column(loop, "start_ns"), float_column(loop, "end_ns")
    end = np.where(np.isnan(end), float_column(loop, "last_ns"), end)
    if len(machine) < 2 or not len(loop) or np.isnan([*start, *end]).any():
        return None
    begin, last, times = float(start.min()), float(end.max()), float_column(machine, "time_ns")
    return (begin, last) if times[0] <= begin and last <= times[-1] else None


def _columns(wall: str, prefix: str) -> tuple[str, str, str, str]:
    return wall, f"{prefix}cpu_ns", f"{prefix}run_delay_ns", f"{prefix}process_cpu_ns"


def _threads(
    wall: Floats, cpu: Floats, delay: Floats, process: Floats, *, beside_ns: float = 0.0
) -> Threads:
    """Return the use by threads; `beside_ns`: the most that the work does not wait for."""
    known: Bools = np.isfinite(wall) & np.isfinite(cpu) & np.isfinite(delay) & np.isfinite(process)
    took, on, ready, all_threads = (total(part[known]) for part in (wall, cpu, delay, process))
    all_threads = max(all_threads - beside_ns, min(on, all_threads))
    return Threads(
        delay_share=min(ratio(ready, took), 1.0) if took > 0 else math.nan,
        blocked_share=ratio(max(took - on - ready, 0.0), took),
        helper_share=ratio(max(all_threads - on, 0.0), all_threads),
        cores=ratio(all_threads, took),
        helper_ns=ratio(max(all_threads - on, 0.0), int(known.sum())),
    )


def _mean(values: Floats) -> float:
    measured = values[np.isfinite(values)]
    return float(measured.mean()) if measured.size else math.nan
