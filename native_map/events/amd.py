"""AMD Zen 4 and Zen 5.

Encodings and formulae: Linux tools/perf/pmu-events/arch/x86/amdzen4 and amdzen5. The top-down
events of Zen 5 were also measured on loops of known work (EPYC, family 26, docs/silicon): the four
shares of level 1 sum to 1 within 0.1 %, and level 2 names what each loop was written to do.
Zen 3 has no table: no source for its level 1 was found.
"""

from collections.abc import Mapping

from native_map.events.event_model import Event, EventSet, EventTable, Models, vendor_event
from native_map.events.generic import BRANCH_MISSES, COMMON_SETS

_TOPDOWN_GIVES = ("ipc", "frontend_bound", "backend_bound", "retiring", "bad_speculation")
_LEVEL_2_GIVES = (
    *_TOPDOWN_GIVES,
    *("frontend_latency", "frontend_bandwidth", "backend_memory", "backend_core"),
    *("mispredicted_branches", "pipeline_restarts", "microcode"),
)


# name, the vendor's name, event, umask, unit, text
_EVENTS = (
    (
        "slots_frontend", "de_no_dispatch_per_slot.no_ops_from_frontend", 0x1A0, 0x01, "slots",
        "dispatch slots left empty because the front end supplied no ops",
    ),
    (
        "slots_backend", "de_no_dispatch_per_slot.backend_stalls", 0x1A0, 0x1E, "slots",
        "dispatch slots left empty because of back-end stalls",
    ),
    (
        "slots_smt", "de_no_dispatch_per_slot.smt_contention", 0x1A0, 0x60, "slots",
        "dispatch slots that the core's other thread had",
    ),
    ("ops_retired", "ex_ret_ops", 0xC1, 0x00, "ops", "retired macro-ops"),
    ("ops_dispatched", "de_src_op_disp.all", 0xAA, 0x07, "ops", "dispatched macro-ops"),
    (
        "retire_waits", "ex_no_retire.not_complete", 0xD6, 0x02, "cycles",
        "cycles in which nothing retired as the oldest op was still being executed",
    ),
    (
        "retire_waits_load", "ex_no_retire.load_not_complete", 0xD6, 0xA2, "cycles",
        "cycles in which nothing retired as the oldest op waited for data from memory",
    ),
    ("ops_microcode", "ex_ret_ucode_ops", 0x1C2, 0x00, "ops", "retired ops of microcode"),
    (
        "l1d_misses", "ls_dmnd_fills_from_sys.all", 0x43, 0xFF, "lines",
        "L1 data cache fills on demand, prefetches not counted",
    ),
    (
        "l2_misses", "l2_cache_req_stat.ic_dc_miss_in_l2", 0x64, 0x09, "requests",
        "requests of the L1 caches that missed L2, L2 prefetches not counted",
    ),
    (
        "llc_misses", "ls_dmnd_fills_from_sys.near_cache + far_cache + dram_io_near + dram_io_far",
        0x43, 0x5C, "lines",
        "L1 data cache fills on demand from beyond this core complex's L3",
    ),
    (
        "dram_loads", "ls_dmnd_fills_from_sys.dram_io_near + dram_io_far", 0x43, 0x48, "lines",
        "L1 data cache fills on demand from memory, of any NUMA node",
    ),
    (
        "dtlb_misses", "ls_l1_d_tlb_miss.all_l2_miss", 0x45, 0xF0, "walks",
        "data accesses that missed both TLB levels and walked the page table",
    ),
    (
        "itlb_misses", "bp_l1_tlb_miss_l2_tlb_miss.all", 0x85, 0x0F, "walks",
        "instruction fetches that missed both TLB levels and walked the page table",
    ),
)  # fmt: skip


def _events(source: str, width: int, resync: tuple[str, int, int]) -> dict[str, Event]:
    """Return the events of a generation, by name; `resync` as of `_table`."""
    made = {row[0]: vendor_event(source, *row) for row in _EVENTS}
    made["frontend_starved"] = vendor_event(
        source,
        "frontend_starved",
        f"de_no_dispatch_per_slot.no_ops_from_frontend,cmask={width}",
        0x1A0,
        0x01,
        "cycles",
        "cycles in which the front end supplied no op at all",
        cmask=width,
    )
    text = "restarts of the pipeline that no mispredicted branch caused"
    made["resyncs"] = vendor_event(source, "resyncs", *resync, "restarts", text)
    return made


def _sets(made: Mapping[str, Event]) -> dict[str, tuple[EventSet, ...]]:
    """Return the sets of events that are counted together."""

    def named(names: str) -> tuple[Event, ...]:
        return tuple(made[name] for name in names.split())

    topdown = EventSet(
        "where dispatch slots went",
        (named("slots_frontend slots_backend ops_retired ops_dispatched slots_smt"),),
        (*_TOPDOWN_GIVES, "smt_contention"),
        frozenset({"ops_dispatched", "slots_smt"}),
    )
    level_2 = EventSet(
        "where dispatch slots went, two levels deep",
        (
            named("slots_frontend slots_backend ops_retired ops_dispatched"),
            named("frontend_starved retire_waits retire_waits_load"),
            (BRANCH_MISSES, *named("resyncs ops_microcode")),
        ),
        _LEVEL_2_GIVES,
        frozenset({"ops_dispatched"}),
    )
    cache = EventSet(
        "cache misses by level",
        (named("l1d_misses l2_misses llc_misses"),),
        ("l1d_mpki", "l2_mpki", "llc_mpki"),
    )
    memory = EventSet(
        "loads that memory served",
        (named("dram_loads llc_misses"),),
        ("dram_loads_pki", "llc_mpki"),
    )
    tlb = EventSet("page walks", (named("dtlb_misses itlb_misses"),), ("dtlb_mpki", "itlb_mpki"))
    return {
        "topdown": (topdown,),
        "topdown2": (level_2,),
        "cache": (cache,),
        "memory": (memory,),
        "tlb": (tlb,),
        **COMMON_SETS,
    }


def _table(
    name: str, text: str, cpus: Models, where: str, width: int, resync: tuple[str, int, int]
) -> EventTable:
    """`resync`: the vendor's name, event and umask of a restart that no branch caused."""
    source = f"Linux tools/perf/pmu-events/arch/x86/{where}"
    made = _events(source, width, resync)
    return EventTable(
        name=name,
        text=text,
        cpus=(cpus,),
        width=width,
        formula="amd",
        sets=_sets(made),
        notes=(
            "without slots_smt, slots taken by the core's other thread count as bad speculation, "
            "unless ops_dispatched is counted",
            "the L2 misses of page walks are in l2_misses",
        ),
    )


# Zen 3 shares family 25 with Zen 4, Zen 6 family 26 with Zen 5. Models: Linux
# arch/x86/kernel/cpu/amd.c (bsp_init_amd) and tools/perf/pmu-events/arch/x86/mapfile.csv.
ZEN4 = _table(
    "amd_zen4",
    "AMD Zen 4",
    Models("AuthenticAMD", 0x19, (*range(0x10, 0x20), *range(0x60, 0x100))),
    "amdzen4",
    6,
    ("resyncs_or_nc_redirects", 0x96, 0x00),
)
ZEN5 = _table(
    "amd_zen5",
    "AMD Zen 5",
    Models("AuthenticAMD", 0x1A, (*range(0x30), *range(0x40, 0x50), *range(0x60, 0x80))),
    "amdzen5",
    8,
    ("bp_redirects.resync", 0x9F, 0x01),
)
