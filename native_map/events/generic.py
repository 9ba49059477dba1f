"""Generic events, which the kernel knows on every CPU, and software events (perf_event.h)."""

from native_map.events.event_model import HARDWARE, SOFTWARE, Event, EventSet, EventTable

_HW = "Linux include/uapi/linux/perf_event.h, enum perf_hw_id"
_SW = "Linux include/uapi/linux/perf_event.h, enum perf_sw_ids"

CYCLES = Event("cycles", HARDWARE, 0, unit="cycles", text="core cycles, not halted", source=_HW)
INSTRUCTIONS = Event(
    "instructions", HARDWARE, 1, unit="instructions", text="retired instructions", source=_HW
)
CACHE_MISSES = Event(
    "cache_misses",
    HARDWARE,
    3,
    text="cache misses; of which cache, the kernel's driver for this CPU decides",
    source=_HW,
)
BRANCHES = Event("branches", HARDWARE, 4, text="retired branches", source=_HW)
BRANCH_MISSES = Event("branch_misses", HARDWARE, 5, text="mispredicted branches", source=_HW)
STALLED_FRONTEND = Event(
    "stalled_cycles_frontend",
    HARDWARE,
    7,
    unit="cycles",
    text="cycles in which the front end delivered nothing",
    source=_HW,
)
STALLED_BACKEND = Event(
    "stalled_cycles_backend",
    HARDWARE,
    8,
    unit="cycles",
    text="cycles in which the back end took nothing",
    source=_HW,
)

TASK_CLOCK = Event(
    "task_clock",
    SOFTWARE,
    1,
    unit="ns",
    text="time on a CPU, user space and kernel together whatever the flags",
    source=_SW,
    counters=0,
)
PAGE_FAULTS = Event(
    "page_faults",
    SOFTWARE,
    2,
    text="page faults taken by user space code",
    source=_SW,
    counters=0,
)
# The kernel itself switches: with the kernel excluded this would read zero.
CONTEXT_SWITCHES = Event(
    "context_switches", SOFTWARE, 3, flags="uk", text="context switches", source=_SW, counters=0
)

GENERIC_SET = EventSet(
    "what the kernel can count by name on any CPU",
    ((STALLED_FRONTEND, STALLED_BACKEND), (BRANCH_MISSES, CACHE_MISSES)),
    ("ipc", "frontend_stalled", "backend_stalled", "branch_mpki", "cache_mpki"),
)
SOFTWARE_SET = EventSet(
    "what the kernel counts without hardware",
    ((PAGE_FAULTS, CONTEXT_SWITCHES),),
    ("cpu_ns",),
)
BRANCH_SET = EventSet(
    "branches and their mispredictions",
    ((BRANCH_MISSES, BRANCHES),),
    ("branch_mpki", "branch_miss_rate"),
)

COMMON_SETS: dict[str, tuple[EventSet, ...]] = {
    "generic": (GENERIC_SET,),
    "software": (SOFTWARE_SET,),
    "branch": (BRANCH_SET,),
}

TABLE = EventTable(
    name="generic",
    text="unknown CPU",
    sets=COMMON_SETS,
    notes=("what cache_misses counts differs from CPU to CPU",),
)
