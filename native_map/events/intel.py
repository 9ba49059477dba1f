"""Intel Skylake-SP to Granite Rapids.

Encodings and formulae: Linux tools/perf/pmu-events/arch/x86/ skylakex, cascadelakex, icelakex,
sapphirerapids, graniterapids (tma_* of their *-metrics.json); the perf metrics' pseudo events:
Linux arch/x86/events/intel/core.c (slots event=0x00,umask=0x4; topdown-* umask 0x80 to 0x83, of
level 2 0x84 to 0x87) and arch/x86/include/asm/perf_event.h (INTEL_TD_METRIC_*).
libpfm4 4.13 agrees where compared, except that it encodes TOPDOWN.BACKEND_BOUND_SLOTS as event
0x00; this table uses Linux's 0xa4, which comes from Intel's own tables.
"""

from native_map.events.event_model import Event, EventSet, EventTable, Models, config, vendor_event
from native_map.events.generic import COMMON_SETS
from native_map.events.metrics import PERF_METRICS_2 as LEVEL_2_OF_PERF_METRICS

# Models: Linux tools/perf/pmu-events/arch/x86/mapfile.csv and arch/x86/include/asm/intel-family.h.
# Client parts whose core events are the server's are listed with it; hybrid parts have two kinds of
# core and stay generic.


def _family_6(*models: int) -> tuple[Models, ...]:
    return (Models("GenuineIntel", 6, models),)


_GIVES = ("ipc", "frontend_bound", "backend_bound", "retiring", "bad_speculation")


def _maker(where: str) -> "_Make":
    return _Make(f"Linux tools/perf/pmu-events/arch/x86/{where}")


class _Make:
    def __init__(self, where: str) -> None:
        self.where = where

    def __call__(
        self, name: str, vendor: str, event: int, umask: int, unit: str, text: str
    ) -> Event:
        return vendor_event(self.where, name, vendor, event, umask, unit, text)


def _perf_metric(name: str, umask: int, spelling: str, text: str) -> Event:
    return Event(
        name,
        "cpu",
        config(0x00, umask),
        unit="slots",
        text=text,
        source=f"Linux arch/x86/events/intel/core.c: {spelling}",
        vendor=spelling,
        counters=0,
    )


# The slots register must lead the group and the four shares must follow it; the shares are 8 bit
# fields of one register, which the kernel turns into slots.
PERF_METRICS = EventSet(
    "where issue slots went, from the perf metrics register, which takes no counter",
    (
        (
            _perf_metric("slots", 0x04, "slots", "issue slots of this thread"),
            _perf_metric("topdown_retiring", 0x80, "topdown-retiring", "slots that retired"),
            _perf_metric(
                "topdown_bad_spec", 0x81, "topdown-bad-spec", "slots wasted by bad speculation"
            ),
            _perf_metric(
                "topdown_fe_bound", 0x82, "topdown-fe-bound", "slots that the front end left empty"
            ),
            _perf_metric(
                "topdown_be_bound", 0x83, "topdown-be-bound", "slots that the back end left empty"
            ),
        ),
    ),
    _GIVES,
)

# Sapphire Rapids and newer: the upper half of the same register. Ice Lake has none of it.
PERF_METRICS_2 = EventSet(
    "where issue slots went, two levels deep, from the perf metrics register",
    (
        (
            *PERF_METRICS.events,
            _perf_metric(
                "topdown_heavy_ops",
                0x84,
                "topdown-heavy-ops",
                "slots used by instructions of several micro-operations or of microcode",
            ),
            _perf_metric(
                "topdown_br_mispredict",
                0x85,
                "topdown-br-mispredict",
                "slots wasted by mispredicted branches",
            ),
            _perf_metric(
                "topdown_fetch_lat",
                0x86,
                "topdown-fetch-lat",
                "slots left empty while the front end delivered nothing at all",
            ),
            _perf_metric(
                "topdown_mem_bound",
                0x87,
                "topdown-mem-bound",
                "slots left empty while the back end waited for loads or stores",
            ),
        ),
    ),
    (*_GIVES, *(node for nodes in LEVEL_2_OF_PERF_METRICS.values() for node in nodes)),
)


def _cache_sets(make: _Make) -> dict[str, tuple[EventSet, ...]]:
    l1d = make(
        "l1d_misses",
        "mem_load_retired.l1_miss",
        0xD1,
        0x08,
        "loads",
        "retired loads that missed L1",
    )
    l2 = make(
        "l2_misses", "mem_load_retired.l2_miss", 0xD1, 0x10, "loads", "retired loads that missed L2"
    )
    llc = make(
        "llc_misses",
        "mem_load_retired.l3_miss",
        0xD1,
        0x20,
        "loads",
        "retired loads that missed L3",
    )
    local = make(
        "dram_local_loads",
        "mem_load_l3_miss_retired.local_dram",
        0xD3,
        0x01,
        "loads",
        "retired loads that this socket's memory served",
    )
    remote = make(
        "dram_remote_loads",
        "mem_load_l3_miss_retired.remote_dram",
        0xD3,
        0x02,
        "loads",
        "retired loads that another socket's memory served",
    )
    return {
        "cache": (
            EventSet(
                "retired loads by the level that they missed",
                ((l1d, l2, llc),),
                ("l1d_mpki", "l2_mpki", "llc_mpki"),
            ),
        ),
        "memory": (
            EventSet("retired loads that memory served", ((local, remote),), ("dram_loads_pki",)),
        ),
    }


def _tlb_set(make: _Make, load: int, store: int, fetch: int) -> tuple[EventSet, ...]:
    events = tuple(
        make(name, vendor, code, 0x0E, "walks", text)
        for name, vendor, code, text in (
            (
                "dtlb_load_misses",
                "dtlb_load_misses.walk_completed",
                load,
                "loads that missed every TLB level and walked the page table",
            ),
            (
                "dtlb_store_misses",
                "dtlb_store_misses.walk_completed",
                store,
                "stores that missed every TLB level and walked the page table",
            ),
            (
                "itlb_misses",
                "itlb_misses.walk_completed",
                fetch,
                "instruction fetches that missed every TLB level and walked the page table",
            ),
        )
    )
    return (EventSet("page walks", (events,), ("dtlb_mpki", "itlb_mpki")),)


def _skylake() -> EventTable:
    make = _maker("skylakex and cascadelakex")
    topdown = EventSet(
        "where issue slots went",
        (
            (
                make(
                    "slots_frontend",
                    "idq_uops_not_delivered.core",
                    0x9C,
                    0x01,
                    "slots",
                    "issue slots for which the front end delivered nothing",
                ),
                make(
                    "ops_retired",
                    "uops_retired.retire_slots",
                    0xC2,
                    0x02,
                    "slots",
                    "slots used by micro-operations that retired",
                ),
                make("ops_dispatched", "uops_issued.any", 0x0E, 0x01, "ops", "issued micro-ops"),
                make(
                    "recovery_cycles",
                    "int_misc.recovery_cycles",
                    0x0D,
                    0x01,
                    "cycles",
                    "cycles in which issue waited for recovery from a wrong path",
                ),
            ),
        ),
        _GIVES,
    )
    return EventTable(
        name="intel_skylake",
        text="Intel Skylake-SP, Cascade Lake, Cooper Lake, Skylake client",
        # 0x55 is Skylake-SP, Cascade Lake and Cooper Lake, which differ in their stepping.
        cpus=_family_6(0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6, 0x55),
        width=4,
        formula="intel_issue",
        sets={
            "topdown": (topdown,),
            **_cache_sets(make),
            "tlb": _tlb_set(make, 0x08, 0x49, 0x85),
            **COMMON_SETS,
        },
        notes=(
            "slots are 4 a cycle of the thread: where its core's other thread is busy too, the "
            "slots that this one had count as back-end bound",
        ),
    )


def _counted_slots(make: _Make, frontend: str) -> EventSet:
    """Return the set for machines without perf metrics, as most VMs are."""
    return EventSet(
        "where issue slots went, with counters, for machines without perf metrics (most VMs)",
        (
            (
                make(
                    "slots_frontend",
                    frontend,
                    0x9C,
                    0x01,
                    "slots",
                    "issue slots for which the front end delivered nothing",
                ),
                make(
                    "slots_backend",
                    "topdown.backend_bound_slots",
                    0xA4,
                    0x02,
                    "slots",
                    "issue slots left empty for lack of back-end resources",
                ),
                make(
                    "ops_retired",
                    "uops_retired.slots",
                    0xC2,
                    0x02,
                    "slots",
                    "slots used by micro-operations that retired",
                ),
                make(
                    "slots_counted",
                    "topdown.slots_p",
                    0xA4,
                    0x01,
                    "slots",
                    "issue slots of this thread",
                ),
            ),
        ),
        _GIVES,
        frozenset({"slots_counted"}),
    )


def _since_icelake(
    name: str,
    text: str,
    cpus: tuple[Models, ...],
    where: str,
    width: int,
    walks: tuple[int, int, int],
    frontend: str,
    level_2: bool = True,
) -> EventTable:
    make = _maker(where)
    counted = _counted_slots(make, frontend)
    return EventTable(
        name=name,
        text=text,
        cpus=cpus,
        width=width,
        formula="intel_slots",
        sets={
            "topdown": (PERF_METRICS, counted),
            **({"topdown2": (PERF_METRICS_2,)} if level_2 else {}),
            **_cache_sets(make),
            "tlb": _tlb_set(make, *walks),
            **COMMON_SETS,
        },
        notes=(
            "perf metrics are 8 bit shares: an operation's own is exact to about 0.4 % of the "
            "slots between two reads",
            "front-end bound and front-end latency without the correction by INT_MISC.UOP_DROPPING",
        ),
    )


SKYLAKE = _skylake()
ICELAKE = _since_icelake(
    "intel_icelake",
    "Intel Ice Lake-SP, Ice Lake and Tiger Lake client",
    # -SP: 0x6A, 0x6C; client: 0x7D, 0x7E; Tiger Lake: 0x8C, 0x8D
    _family_6(0x6A, 0x6C, 0x7D, 0x7E, 0x8C, 0x8D),
    "icelakex",
    5,
    (0x08, 0x49, 0x85),
    "idq_uops_not_delivered.core",
    level_2=False,
)
SAPPHIRE = _since_icelake(
    "intel_sapphire",
    "Intel Sapphire Rapids, Emerald Rapids",
    _family_6(0x8F, 0xCF),
    "sapphirerapids",
    6,
    (0x12, 0x13, 0x11),
    "idq_uops_not_delivered.core",
)
GRANITE = _since_icelake(
    "intel_granite",
    "Intel Granite Rapids",
    _family_6(0xAD, 0xAE),
    "graniterapids",
    6,
    (0x12, 0x13, 0x11),
    "idq_bubbles.core",
)
