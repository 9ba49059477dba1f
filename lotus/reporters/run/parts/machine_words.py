"""The line of a report on the machine while a loader was iterated."""

import math
from collections.abc import Iterator

from lotus.analysis.machine.machine_state import MachineState
from lotus.common.text.formatting import duration, plural, share, size

_LEAST_SHARE = 0.01  # less of a stall is ordinary
_LEAST_MHZ = 100.0  # by which the frequency varies, to be parts
_LEAST_RATE = 1e6  # bytes a second: journals and logs alone write less


def machine_words(state: MachineState) -> str:
    """Return what the machine did, with what is worth telling of it; "" if that is not known."""
    parts = [*_cores(state), *_disks(state), *_stalls(state)]
    if state.throttled_ns > 0:
        parts.append(f"a CPU quota held threads back for {duration(state.throttled_ns)}")
    if state.most_mhz - state.least_mhz >= _LEAST_MHZ:
        parts.append(f"CPUs at {state.least_mhz:,.0f} to {state.most_mhz:,.0f} MHz")
    return "; ".join(parts)


def _cores(state: MachineState) -> Iterator[str]:
    users = (state.own_share, state.others_share, state.stolen_share)
    if not math.isfinite(state.own_share) or not math.isfinite(state.others_share):
        return
    idle = max(1.0 - sum(each for each in users if math.isfinite(each)), 0.0)
    named = zip(("this program", "others", "hypervisor"), users, strict=True)
    parts = [f"{who} {share(part)}" for who, part in named if part > 0 or who != "hypervisor"]
    yield f"{plural(state.cores, 'core')}: {', '.join(parts)}, idle {share(idle)}"


def _disks(state: MachineState) -> Iterator[str]:
    rates = (("read", state.disk_read_bytes_per_s), ("written", state.disk_written_bytes_per_s))
    parts = [f"{size(rate)} {done}" for done, rate in rates if rate >= _LEAST_RATE]
    if parts:
        yield f"local disks: {', '.join(parts)} a second"


def _stalls(state: MachineState) -> Iterator[str]:
    kinds = (("a disk", state.io_stall_share), ("memory", state.memory_stall_share))
    parts = [f"{what} for {share(part)}" for what, part in kinds if part >= _LEAST_SHARE]
    if parts:
        yield f"some thread waited for {' and for '.join(parts)} of the time"
