"""Names and meanings of the metrics, and the events that each needs. Imports no numpy."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from native_map.events.event_model import EventTable


class Metric(NamedTuple):
    """The meaning of a metric. The units "of slots" and "of cycles" are shares from 0 to 1."""

    text: str
    unit: str
    formula: str
    source: str

    @property
    def is_share(self) -> bool:
        """True if its values are shares from 0 to 1."""
        return self.unit.startswith("of ")


_TOPDOWN = (
    "AMD, Arm: Linux tools/perf/pmu-events PipelineL1 and TopdownL1 of amdzen4, amdzen5, "
    "neoverse-v1, neoverse-n2-v2; Intel: Yasin, A Top-Down Method, ISPASS 2014, and TopdownL1 "
    "of skylakex, icelakex, sapphirerapids"
)
_LEVEL_2 = (
    "AMD: Linux tools/perf/pmu-events PipelineL2 of amdzen4 and amdzen5; Intel: TopdownL2 of "
    "sapphirerapids and graniterapids"
)
_PER_THOUSAND = "Linux tools/perf/pmu-events, *_mpki and *_pti metrics"

METRICS: dict[str, Metric] = {
    "ipc": Metric(
        "instructions retired a cycle",
        "instructions/cycle",
        "instructions / cycles",
        "definition",
    ),
    "frontend_bound": Metric(
        "slots left empty because the front end supplied no operations",
        "of slots",
        "slots_frontend / slots; Arm: less those lost to mispredicted branches; Intel perf "
        "metrics: topdown_fe_bound / sum of the four",
        _TOPDOWN,
    ),
    "backend_bound": Metric(
        "slots left empty because the back end could take no operation",
        "of slots",
        "slots_backend / slots; Skylake: 1 - frontend_bound - (ops_dispatched + 4 x "
        "recovery_cycles) / slots; Intel perf metrics: topdown_be_bound / sum of the four",
        _TOPDOWN,
    ),
    "retiring": Metric(
        "slots used by operations that retired",
        "of slots",
        "ops_retired / slots; Arm: ops_retired / ops_dispatched x slots that were not stalled; "
        "Intel perf metrics: topdown_retiring / sum of the four",
        _TOPDOWN,
    ),
    "bad_speculation": Metric(
        "slots used by, or lost to the recovery from, operations that did not retire",
        "of slots",
        "(ops_dispatched - ops_retired) / slots where dispatched operations are counted "
        "(Skylake: + 4 x recovery_cycles), else what the other three leave of 1; it can come out "
        "slightly below 0 where counts are small or multiplexed",
        _TOPDOWN,
    ),
    "frontend_latency": Metric(
        "slots of cycles in which the front end supplied nothing at all, as after a miss of the "
        "instruction cache or TLB, or while fetching starts anew",
        "of slots",
        "frontend_starved / cycles; Intel: topdown_fetch_lat / sum of level 1",
        _LEVEL_2,
    ),
    "frontend_bandwidth": Metric(
        "slots left empty in cycles in which the front end supplied some operations, but too few",
        "of slots",
        "frontend_bound - frontend_latency",
        _LEVEL_2,
    ),
    "backend_memory": Metric(
        "slots left empty while operations waited for data from caches or memory",
        "of slots",
        "backend_bound x retire_waits_load / retire_waits; not told apart from backend_core where "
        "retire_waits are under 2 % of cycles; Intel: topdown_mem_bound / sum of level 1",
        _LEVEL_2,
    ),
    "backend_core": Metric(
        "slots left empty while operations were being executed, as in long chains of arithmetic",
        "of slots",
        "backend_bound - backend_memory",
        _LEVEL_2,
    ),
    "mispredicted_branches": Metric(
        "slots lost to mispredicted branches",
        "of slots",
        "bad_speculation x branch_misses / (branch_misses + resyncs); Intel: "
        "topdown_br_mispredict / sum of level 1",
        _LEVEL_2,
    ),
    "pipeline_restarts": Metric(
        "slots lost to restarts of the pipeline that no branch caused",
        "of slots",
        "bad_speculation x resyncs / (branch_misses + resyncs); Intel: bad_speculation - "
        "mispredicted_branches",
        _LEVEL_2,
    ),
    "microcode": Metric(
        "slots used by operations of microcode, which are slow",
        "of slots",
        "ops_microcode / slots",
        _LEVEL_2,
    ),
    "heavy_operations": Metric(
        "slots used by instructions that take two micro-operations or more each, or microcode",
        "of slots",
        "topdown_heavy_ops / sum of level 1",
        _LEVEL_2,
    ),
    "smt_contention": Metric(
        "slots that the core's other thread had",
        "of slots",
        "slots_smt / slots",
        _TOPDOWN,
    ),
    "frontend_stalled": Metric(
        "cycles, not slots, in which the front end delivered nothing",
        "of cycles",
        "stalled_cycles_frontend / cycles",
        "Linux tools/perf/pmu-events/arch/arm64/arm/neoverse-n1: frontend_stalled_cycles",
    ),
    "backend_stalled": Metric(
        "cycles, not slots, in which the back end took nothing",
        "of cycles",
        "stalled_cycles_backend / cycles",
        "Linux tools/perf/pmu-events/arch/arm64/arm/neoverse-n1: backend_stalled_cycles",
    ),
    "l1d_mpki": Metric(
        "L1 data cache misses", "per 1000 instructions", "l1d_misses / instructions", _PER_THOUSAND
    ),
    "l2_mpki": Metric(
        "L2 cache misses", "per 1000 instructions", "l2_misses / instructions", _PER_THOUSAND
    ),
    "llc_mpki": Metric(
        "last level cache misses",
        "per 1000 instructions",
        "llc_misses / instructions",
        _PER_THOUSAND,
    ),
    "cache_mpki": Metric(
        "misses of the cache that the kernel's driver chose for this CPU",
        "per 1000 instructions",
        "cache_misses / instructions",
        "Linux include/uapi/linux/perf_event.h: PERF_COUNT_HW_CACHE_MISSES",
    ),
    "dram_loads_pki": Metric(
        "loads or fills that memory served",
        "per 1000 instructions",
        "dram_loads, or dram_local_loads + dram_remote_loads, / instructions",
        _PER_THOUSAND,
    ),
    "branch_mpki": Metric(
        "mispredicted branches",
        "per 1000 instructions",
        "branch_misses / instructions",
        _PER_THOUSAND,
    ),
    "branch_miss_rate": Metric(
        "mispredicted branches", "of branches", "branch_misses / branches", _PER_THOUSAND
    ),
    "itlb_mpki": Metric(
        "page walks of instruction fetches",
        "per 1000 instructions",
        "itlb_misses / instructions",
        _PER_THOUSAND,
    ),
    "dtlb_mpki": Metric(
        "page walks of data accesses",
        "per 1000 instructions",
        "dtlb_misses, or dtlb_load_misses + dtlb_store_misses, / instructions",
        _PER_THOUSAND,
    ),
    "cpu_ns": Metric(
        "time on a CPU, user space and kernel",
        "ns",
        "task_clock",
        "Linux include/uapi/linux/perf_event.h: PERF_COUNT_SW_TASK_CLOCK",
    ),
}

# Numerators per thousand instructions; the first form whose events are all counted is used.
PER_KILO = {
    "l1d_mpki": (("l1d_misses",),),
    "l2_mpki": (("l2_misses",),),
    "llc_mpki": (("llc_misses",),),
    "cache_mpki": (("cache_misses",),),
    "dram_loads_pki": (("dram_loads",), ("dram_local_loads", "dram_remote_loads")),
    "branch_mpki": (("branch_misses",),),
    "itlb_mpki": (("itlb_misses",),),
    "dtlb_mpki": (("dtlb_misses",), ("dtlb_load_misses", "dtlb_store_misses")),
}

# (metric, numerator, denominator)
RATIOS = (
    ("ipc", "instructions", "cycles"),
    ("branch_miss_rate", "branch_misses", "branches"),
    ("frontend_stalled", "stalled_cycles_frontend", "cycles"),
    ("backend_stalled", "stalled_cycles_backend", "cycles"),
)

# The nodes of level 2 below each node of level 1.
LEVEL_2 = {
    "frontend_bound": ("frontend_latency", "frontend_bandwidth"),
    "backend_bound": ("backend_memory", "backend_core"),
    "bad_speculation": ("mispredicted_branches", "pipeline_restarts"),
    "retiring": ("microcode", "heavy_operations"),
}

PERF_METRICS = ("topdown_fe_bound", "topdown_be_bound", "topdown_retiring", "topdown_bad_spec")
# Of level 2 the register has one node of each of level 1; the other one is what that leaves.
PERF_METRICS_2 = {
    "topdown_fetch_lat": ("frontend_latency", "frontend_bandwidth"),
    "topdown_mem_bound": ("backend_memory", "backend_core"),
    "topdown_br_mispredict": ("mispredicted_branches", "pipeline_restarts"),
    "topdown_heavy_ops": ("heavy_operations",),
}


_Needs = Mapping[str, tuple[frozenset[str], ...]]


def _needs(**metrics: str) -> _Needs:
    """Alternatives are separated by "|", events by blanks."""
    return {
        name: tuple(frozenset(form.split()) for form in text.split("|"))
        for name, text in metrics.items()
    }


def _arm() -> _Needs:
    all_four = "cycles slots_frontend slots_backend ops_retired ops_dispatched"
    return _needs(
        frontend_bound="cycles slots_frontend",
        backend_bound="cycles slots_backend",
        retiring=all_four,
        bad_speculation=all_four,
    )


def _intel_slots() -> _Needs:
    events = {
        "frontend_bound": "slots_frontend",
        "backend_bound": "slots_backend",
        "retiring": "ops_retired",
        "bad_speculation": "slots_frontend slots_backend ops_retired",
    }
    widths = ("cycles", "slots", "slots_counted")
    perf_metrics = " ".join(PERF_METRICS)
    level_1 = {
        name: "|".join([perf_metrics, *(f"{width} {text}" for width in widths)])
        for name, text in events.items()
    }
    level_2 = {
        node: f"{perf_metrics} {event}" for event, nodes in PERF_METRICS_2.items() for node in nodes
    }
    return _needs(**level_1, **level_2)


_AMD_RESTARTS = (
    "cycles ops_retired ops_dispatched branch_misses resyncs"
    "|cycles ops_retired slots_frontend slots_backend branch_misses resyncs"
)
# Events that each top-down formula needs; native_map.events.formulas has the formulas.
_TOPDOWN_NEEDS: Mapping[str, _Needs] = {
    "amd": _needs(
        frontend_bound="cycles slots_frontend",
        backend_bound="cycles slots_backend",
        retiring="cycles ops_retired",
        smt_contention="cycles slots_smt",
        bad_speculation="cycles ops_retired ops_dispatched"
        "|cycles ops_retired slots_frontend slots_backend",
        frontend_latency="cycles frontend_starved",
        frontend_bandwidth="cycles slots_frontend frontend_starved",
        backend_memory="cycles slots_backend retire_waits retire_waits_load",
        backend_core="cycles slots_backend retire_waits retire_waits_load",
        mispredicted_branches=_AMD_RESTARTS,
        pipeline_restarts=_AMD_RESTARTS,
        microcode="cycles ops_microcode",
    ),
    "intel_issue": _needs(
        frontend_bound="cycles slots_frontend",
        retiring="cycles ops_retired",
        bad_speculation="cycles ops_retired ops_dispatched recovery_cycles",
        backend_bound="cycles slots_frontend ops_dispatched recovery_cycles",
    ),
    "intel_slots": _intel_slots(),
    "arm_v1": _arm(),
    "arm_n2_v2": _arm(),
}


def gives(events: Iterable[str], table: EventTable) -> set[str]:
    """Return the names of the metrics that these events give on the table's CPU."""
    counted = set(events)
    names = {name for name, above, below in RATIOS if {above, below} <= counted}
    if "instructions" in counted:
        names |= {name for name, forms in PER_KILO.items() if any(counted >= {*f} for f in forms)}
    if "task_clock" in counted:
        names.add("cpu_ns")
    needs = _TOPDOWN_NEEDS.get(table.formula, {})
    names |= {name for name, forms in needs.items() if any(form <= counted for form in forms)}
    return names | {name for name, e in table.expressions.items() if e.names <= counted}
