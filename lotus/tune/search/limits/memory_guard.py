"""Decides which settings are safe to try, by comparing their worst case with the free resources.

It is pure: costs of one worker and limits of the machine go in, a verdict with reasons comes out.
"""

from dataclasses import dataclass

from lotus.common.machine.memory_headroom import Headroom
from lotus.common.text.formatting import amount, plural, size
from lotus.settings.space import Setting
from lotus.tune.search.limits.machine_limits import MachineLimits
from lotus.tune.search.limits.resource_costs import ResourceCosts

# Reserves: other programs use memory too, and growth measured over seconds continues.
MEMORY_MARGIN = 0.10  # share of the free memory
SHM_MARGIN = 0.10  # share of what is free in /dev/shm
DESCRIPTOR_MARGIN = 64

# Batches outside the loader: the current one, and the previous one, which the loop's variable or
# an unfinished copy to a device still references.
HELD = 2
_PAGE = 4096  # each shared tensor takes whole pages
# torch's caching host allocator rounds a pinned tensor up to a power of two.
_PINNED = 2
_PER_WORKER = 4  # descriptors in the main process: pipes of two queues and the process's sentinel


@dataclass(frozen=True)
class Need:
    """The most that a setting needs beyond what is in use without it, in bytes."""

    in_flight: int  # batches requested and not yet returned to the training loop
    held: int  # batches that the training loop holds
    worker_bytes: int  # of one worker
    workers_bytes: int  # of all workers
    batches_bytes: int  # of the batches, in any kind of memory
    shm_bytes: int  # the part of batches_bytes in /dev/shm
    descriptors: int | None  # in the process that needs most; None: not known

    @property
    def memory_bytes(self) -> int:
        """Bytes of workers and batches."""
        return self.workers_bytes + self.batches_bytes


@dataclass(frozen=True)
class SafetyVerdict:
    """The reasons against trying a setting, and what could not be checked."""

    setting: Setting
    reasons: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """True if the setting fits."""
        return not self.reasons


def judge(setting: Setting, costs: ResourceCosts, limits: MachineLimits) -> SafetyVerdict:
    """Judge whether `setting` fits in `limits`, which were read while no worker was running."""
    setting = setting.normal()
    need = predict(setting, costs)
    if need is None:
        why = (
            f"the memory of a worker under {setting.start_method} is not known: only workers "
            f"under {costs.start_method} were measured, and not the main process"
        )
        return SafetyVerdict(setting, reasons=(why,))
    reasons, unknown = [], []
    if limits.memory is None:
        unknown.append("how much memory is free is not known")
    elif need.memory_bytes > limits.memory.free * (1 - MEMORY_MARGIN):
        reasons.append(_memory_reason(setting, costs, need, limits.memory))
    if limits.shm is None:
        if need.shm_bytes:
            unknown.append("/dev/shm was not found")
    elif need.shm_bytes > limits.shm.free * (1 - SHM_MARGIN):
        reasons.append(_shm_reason(setting, costs, need, limits.shm))
    if limits.descriptors is not None and need.shm_bytes and setting.num_workers:
        if need.descriptors is None:
            unknown.append("how many descriptors a batch needs is not known")
        elif need.descriptors > limits.descriptors - DESCRIPTOR_MARGIN:
            reasons.append(_descriptor_reason(setting, costs, need, limits.descriptors))
    return SafetyVerdict(setting, tuple(reasons), tuple(unknown))


def predict(setting: Setting, costs: ResourceCosts) -> Need | None:
    """Return the worst-case need of a setting: the loop is paused and every batch is prefetched.

    Without workers the main process is assumed to grow as a worker does. A worker under another
    start method than the measured one is assumed to need the main process's memory in addition;
    returns None if that is not known.
    """
    setting = setting.normal()
    workers, prefetch = setting.num_workers, setting.prefetch_factor or 0
    each = costs.worker_bytes
    methods = {setting.start_method, costs.start_method}
    if workers and None not in methods and len(methods) > 1:
        if costs.main_bytes is None:
            return None
        each += costs.main_bytes
    in_flight = workers * prefetch
    if costs.batches is not None:
        in_flight = min(in_flight, costs.batches)
    count = in_flight + HELD
    pages = _PAGE * (costs.tensors if costs.tensors is not None else 1)
    one_shared = costs.shared_bytes + pages if costs.shared_bytes else 0
    if workers == 0:
        shm = 0
        batches = (count + 1) * costs.batch_bytes  # including the samples being collated
    else:
        shm = count * one_shared
        # Data in a pipe exists twice while a worker writes it and the main process reads it.
        batches = shm + (count + workers + 1) * costs.pipe_bytes
    if setting.pin_memory:
        # The shared memory of a batch is freed once its copy is pinned; one batch is being copied.
        batches = max(batches, _PINNED * count * costs.batch_bytes) + costs.batch_bytes
    return Need(
        in_flight=in_flight,
        held=HELD,
        worker_bytes=each,
        workers_bytes=max(workers, 1) * each,
        batches_bytes=batches,
        shm_bytes=shm,
        descriptors=_descriptors(workers, prefetch, count, costs),
    )


def _descriptors(workers: int, prefetch: int, count: int, costs: ResourceCosts) -> int | None:
    """Return the descriptors of the process that needs most, without those open before."""
    own = _PER_WORKER * workers
    if not workers or not costs.shared_bytes or costs.sharing != "file_descriptor":
        return own
    if costs.tensors is None:
        return None
    # One per received tensor; a worker has two until the main process has opened its own.
    return max(own + count * costs.tensors, 2 * (prefetch + 1) * costs.tensors)


def _held(setting: Setting, need: Need, each: int) -> str:
    if setting.num_workers == 0:
        return f"{need.held} batches of {size(each)} in use"
    batches = f"{plural(need.in_flight, 'batch')} of {size(each)}"
    return (
        f"{plural(setting.num_workers, 'worker')} x prefetch {setting.prefetch_factor} "
        f"hold up to {batches}, the training loop {need.held}"
    )


def _memory_reason(setting: Setting, costs: ResourceCosts, need: Need, room: Headroom) -> str:
    who = plural(setting.num_workers, "worker") if setting.num_workers else "the main process"
    return (
        f"{_held(setting, need, costs.batch_bytes)}: {size(need.batches_bytes)}"
        f"{' with pinned copies' if setting.pin_memory else ''}, and {who} "
        f"x {size(need.worker_bytes)} = {size(need.workers_bytes)}, together "
        f"{size(need.memory_bytes)} of memory: {room.why}{_margin(need.memory_bytes, room)}"
    )


def _shm_reason(setting: Setting, costs: ResourceCosts, need: Need, room: Headroom) -> str:
    return (
        f"{_held(setting, need, costs.shared_bytes)}: {size(need.shm_bytes)} of shared memory: "
        f"{room.why}{_margin(need.shm_bytes, room)}"
    )


def _margin(wanted: int, room: Headroom) -> str:
    """Return a remark if it would fit without the reserve."""
    return ", of which a tenth is kept in reserve" if wanted <= room.free else ""


def _descriptor_reason(setting: Setting, costs: ResourceCosts, need: Need, free: int) -> str:
    return (
        f"{plural(need.in_flight + need.held, 'batch')} of {plural(costs.tensors or 0, 'tensor')} "
        f"in shared memory, and {plural(setting.num_workers, 'worker')}, need "
        f"{amount(need.descriptors or 0)} descriptors of one process, which may open "
        f"{amount(free)} more (ulimit -n), {DESCRIPTOR_MARGIN} of them kept in reserve"
    )
