"""Arm Neoverse N1, N2, V1, V2.

Encodings: Linux tools/perf/pmu-events/arch/arm64/common-and-microarch.json (Arm ARM, common
events). Formulae: arm/neoverse-v1/metrics.json and arm/neoverse-n2-v2/metrics.json, after Arm's
telemetry-solution.
"""

from native_map.events.event_model import RAW, Event, EventSet, EventTable, Models
from native_map.events.generic import CACHE_MISSES, COMMON_SETS, GENERIC_SET

_COMMON = "Linux tools/perf/pmu-events/arch/arm64/common-and-microarch.json"


def _event(name: str, vendor: str, number: int, unit: str, text: str) -> Event:
    return Event(
        name,
        RAW,
        number,
        unit=unit,
        text=text,
        source=f"{_COMMON}: {vendor}",
        vendor=vendor.lower(),
    )


_FRONTEND = _event(
    "slots_frontend", "STALL_SLOT_FRONTEND", 0x3E, "slots", "slots that the front end left empty"
)
_BACKEND = _event(
    "slots_backend", "STALL_SLOT_BACKEND", 0x3D, "slots", "slots that the back end left empty"
)
_RETIRED = _event("ops_retired", "OP_RETIRED", 0x3A, "ops", "retired micro-operations")
_DISPATCHED = _event(
    "ops_dispatched", "OP_SPEC", 0x3B, "ops", "micro-operations, speculative ones too"
)
_MISPREDICTED = _event(
    "branch_misses_spec",
    "BR_MIS_PRED",
    0x10,
    "events",
    "mispredicted branches, speculative ones too",
)
_STALLED_FRONTEND = _event(
    "stalled_cycles_frontend",
    "STALL_FRONTEND",
    0x23,
    "cycles",
    "cycles with nothing issued because of the front end",
)
_STALLED_BACKEND = _event(
    "stalled_cycles_backend",
    "STALL_BACKEND",
    0x24,
    "cycles",
    "cycles with nothing issued because of the back end",
)
_BRANCH_MISSES = _event(
    "branch_misses", "BR_MIS_PRED_RETIRED", 0x22, "events", "retired mispredicted branches"
)
_SETS: dict[str, tuple[EventSet, ...]] = {
    **COMMON_SETS,
    "generic": (
        EventSet(
            GENERIC_SET.text,
            ((_STALLED_FRONTEND, _STALLED_BACKEND), (_BRANCH_MISSES, CACHE_MISSES)),
            GENERIC_SET.gives,
        ),
    ),
    "cache": (
        EventSet(
            "cache misses by level",
            (
                (
                    _event(
                        "l1d_misses", "L1D_CACHE_REFILL", 0x03, "lines", "refills of L1 data cache"
                    ),
                    _event("l2_misses", "L2D_CACHE_REFILL", 0x17, "lines", "refills of L2"),
                    _event(
                        "llc_misses",
                        "LL_CACHE_MISS_RD",
                        0x37,
                        "reads",
                        "reads that missed the last level cache",
                    ),
                ),
            ),
            ("l1d_mpki", "l2_mpki", "llc_mpki"),
        ),
    ),
    "branch": (
        EventSet(
            "branches and their mispredictions",
            (
                (
                    _BRANCH_MISSES,
                    _event("branches", "BR_RETIRED", 0x21, "events", "retired branches"),
                ),
            ),
            ("branch_mpki", "branch_miss_rate"),
        ),
    ),
    "tlb": (
        EventSet(
            "page walks",
            (
                (
                    _event(
                        "dtlb_misses",
                        "DTLB_WALK",
                        0x34,
                        "walks",
                        "data accesses that walked the page table",
                    ),
                    _event(
                        "itlb_misses",
                        "ITLB_WALK",
                        0x35,
                        "walks",
                        "instruction fetches that walked the page table",
                    ),
                ),
            ),
            ("dtlb_mpki", "itlb_mpki"),
        ),
    ),
}

_NO_DRAM = "no event of the core counts loads that memory served; llc_misses is the nearest"


def _part(number: int) -> tuple[Models, ...]:
    """Part numbers: Linux arch/arm64/include/asm/cputype.h; 0x41 is the implementer Arm."""
    return (Models("ARM", 0x41, (number,)),)


def _with_slots(
    name: str, text: str, part: int, width: int, formula: str, *notes: str
) -> EventTable:
    topdown = EventSet(
        "where dispatch slots went",
        ((_FRONTEND, _BACKEND, _RETIRED, _DISPATCHED, _MISPREDICTED),),
        ("ipc", "frontend_bound", "backend_bound", "retiring", "bad_speculation"),
        frozenset({"branch_misses_spec"}),
    )
    return EventTable(
        name=name,
        text=text,
        cpus=_part(part),
        width=width,
        formula=formula,
        sets={"topdown": (topdown,), **_SETS},
        notes=(
            "without branch_misses_spec the slots lost to mispredictions stay with the front and "
            "back end, as in Linux before 6.6",
            _NO_DRAM,
            *notes,
        ),
    )


V1 = _with_slots("neoverse_v1", "Arm Neoverse V1", 0xD40, 8, "arm_v1")
# 8 slots by Arm's description of the core; caps/slots of the kernel takes precedence if it exists.
V2 = _with_slots("neoverse_v2", "Arm Neoverse V2", 0xD4F, 8, "arm_n2_v2")
N2 = _with_slots(
    "neoverse_n2",
    "Arm Neoverse N2",
    0xD49,
    5,
    "arm_n2_v2",
    "before r0p3 the slot events count one a cycle too much; corrected where the revision is known",
)
N1 = EventTable(
    name="neoverse_n1",
    text="Arm Neoverse N1",
    cpus=_part(0xD0C),
    sets={
        "topdown": (
            EventSet(
                "stalled cycles: this core has no slot events",
                ((_STALLED_FRONTEND, _STALLED_BACKEND),),
                ("ipc", "frontend_stalled", "backend_stalled"),
            ),
        ),
        **_SETS,
    },
    notes=(
        "no slot events: frontend_stalled and backend_stalled are shares of cycles, not of slots",
        _NO_DRAM,
    ),
)
