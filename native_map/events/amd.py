"""AMD Zen 4 and Zen 5.

Encodings and formulae: Linux tools/perf/pmu-events/arch/x86/amdzen4 and amdzen5. The top-down
events of Zen 5 were also measured (sum of the four shares 1 in a Python loop on EPYC, family 26).
Zen 3 has no table: no source for its level 1 was found.
"""

from native_map.events.generic import COMMON_SETS
from native_map.events.model import Event, EventSet, Table, vendor_event

_TOPDOWN_GIVES = ("ipc", "frontend_bound", "backend_bound", "retiring", "bad_speculation")


def _table(name: str, text: str, where: str, width: int) -> Table:
    source = f"Linux tools/perf/pmu-events/arch/x86/{where}"

    def event(name: str, vendor: str, code: int, umask: int, unit: str, text: str) -> Event:
        return vendor_event(source, name, vendor, code, umask, unit, text)

    frontend = event(
        "slots_frontend",
        "de_no_dispatch_per_slot.no_ops_from_frontend",
        0x1A0,
        0x01,
        "slots",
        "dispatch slots left empty because the front end supplied no ops",
    )
    backend = event(
        "slots_backend",
        "de_no_dispatch_per_slot.backend_stalls",
        0x1A0,
        0x1E,
        "slots",
        "dispatch slots left empty because of back-end stalls",
    )
    smt = event(
        "slots_smt",
        "de_no_dispatch_per_slot.smt_contention",
        0x1A0,
        0x60,
        "slots",
        "dispatch slots that the core's other thread had",
    )
    retired = event("ops_retired", "ex_ret_ops", 0xC1, 0x00, "ops", "retired macro-ops")
    dispatched = event(
        "ops_dispatched", "de_src_op_disp.all", 0xAA, 0x07, "ops", "dispatched macro-ops"
    )
    l1d = event(
        "l1d_misses",
        "ls_dmnd_fills_from_sys.all",
        0x43,
        0xFF,
        "lines",
        "L1 data cache fills on demand, prefetches not counted",
    )
    l2 = event(
        "l2_misses",
        "l2_cache_req_stat.ic_dc_miss_in_l2",
        0x64,
        0x09,
        "requests",
        "requests of the L1 caches that missed L2, L2 prefetches not counted",
    )
    llc = event(
        "llc_misses",
        "ls_dmnd_fills_from_sys.near_cache + far_cache + dram_io_near + dram_io_far",
        0x43,
        0x5C,
        "lines",
        "L1 data cache fills on demand from beyond this core complex's L3",
    )
    dram = event(
        "dram_loads",
        "ls_dmnd_fills_from_sys.dram_io_near + dram_io_far",
        0x43,
        0x48,
        "lines",
        "L1 data cache fills on demand from memory, of any NUMA node",
    )
    dtlb = event(
        "dtlb_misses",
        "ls_l1_d_tlb_miss.all_l2_miss",
        0x45,
        0xF0,
        "walks",
        "data accesses that missed both TLB levels and walked the page table",
    )
    itlb = event(
        "itlb_misses",
        "bp_l1_tlb_miss_l2_tlb_miss.all",
        0x85,
        0x0F,
        "walks",
        "instruction fetches that missed both TLB levels and walked the page table",
    )
    return Table(
        name=name,
        text=text,
        width=width,
        formula="amd",
        sets={
            "topdown": (
                EventSet(
                    "where dispatch slots went",
                    ((frontend, backend, retired, dispatched, smt),),
                    (*_TOPDOWN_GIVES, "smt_contention"),
                    frozenset({"ops_dispatched", "slots_smt"}),
                ),
            ),
            "cache": (
                EventSet(
                    "cache misses by level",
                    ((l1d, l2, llc),),
                    ("l1d_mpki", "l2_mpki", "llc_mpki"),
                ),
            ),
            "memory": (
                EventSet(
                    "loads that memory served", ((dram, llc),), ("dram_loads_pki", "llc_mpki")
                ),
            ),
            "tlb": (EventSet("page walks", ((dtlb, itlb),), ("dtlb_mpki", "itlb_mpki")),),
            **COMMON_SETS,
        },
        notes=(
            "without slots_smt, slots taken by the core's other thread count as bad speculation, "
            "unless ops_dispatched is counted",
        ),
    )


ZEN4 = _table("amd_zen4", "AMD Zen 4", "amdzen4", 6)
ZEN5 = _table("amd_zen5", "AMD Zen 5", "amdzen5", 8)
