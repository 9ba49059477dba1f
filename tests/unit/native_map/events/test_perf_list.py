"""What perf list says, in its two forms, and what is made of it."""

import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from native_map.events import TABLES, expression, formulas, perf_list, pmu
from native_map.events.cpu import Cpu

# Written by hand in the form of perf 6.x, shortened.
JSON = """[
{
\t"Unit": "cpu",
\t"EventName": "branch-misses",
\t"EventType": "Hardware event"
},
{
\t"Unit": "cpu",
\t"Topic": "pipeline",
\t"EventName": "ex_ret_ops",
\t"EventType": "Kernel PMU event",
\t"BriefDescription": "Retired macro-ops.",
\t"Encoding": "cpu/event=0xc1,period=2000003/"
},
{
\t"Unit": "cpu",
\t"EventName": "de_no_dispatch_per_slot.no_ops_from_frontend",
\t"Encoding": "cpu/event=0x1a0,umask=0x1/"
},
{
\t"Unit": "cpu",
\t"EventName": "de_no_dispatch_per_slot.backend_stalls",
\t"Encoding": "cpu/period=1000,event=0x1a0,umask=0x1f/"
},
{
\t"MetricGroup": "PipelineL1",
\t"MetricName": "retiring",
\t"MetricExpr": "d_ratio(ex_ret_ops, total_dispatch_slots)",
\t"ScaleUnit": "100%",
\t"BriefDescription": "Slots used by ops that retired."
},
{
\t"MetricGroup": "Default;Other",
\t"MetricName": "retiring"
}
]
"""

# perf 6.1 has no JSON.
DETAILS = """
List of pre-defined events (to be used in -e or -M):

  branch-instructions OR branches                    [Hardware event]
  L1-dcache-loads                                    [Hardware cache event]

pipeline:
  ex_ret_ops
       [Retired macro-ops. Unit: cpu]
        cpu/event=0xc1/
  de_no_dispatch_per_slot.backend_stalls
       [In each cycle counts ops unable to dispatch
        because of back-end stalls]
        cpu/umask=0x1e,period=0x3e8,event=0x1a0/
  rNNN                                               [Raw hardware event descriptor]
"""


def test_json_gives_events_with_encodings_and_metrics_with_groups() -> None:
    listing = perf_list.parse_json(JSON)
    assert listing.events["ex_ret_ops"].encoding == "cpu/event=0xc1,period=2000003/"
    assert listing.events["branch-misses"].encoding == ""
    (metric,) = listing.group("pipelinel1")
    assert (metric.name, metric.scale, metric.unit) == ("retiring", 100, "%")
    assert metric.groups == ("PipelineL1", "Default", "Other")
    assert listing.group("TopdownL1") == []


def test_details_give_events_with_encodings() -> None:
    listing = perf_list.parse_details(DETAILS)
    assert listing.events["ex_ret_ops"].encoding == "cpu/event=0xc1/"
    assert listing.events["ex_ret_ops"].text == "Retired macro-ops. Unit: cpu"
    stalls = listing.events["de_no_dispatch_per_slot.backend_stalls"]
    assert stalls.encoding == "cpu/umask=0x1e,period=0x3e8,event=0x1a0/"
    assert listing.events["branch-instructions"].encoding == ""


def test_perfs_encodings_go_before_ours_and_a_difference_is_said() -> None:
    merged, notes = perf_list.merge(TABLES["amd_zen5"], perf_list.parse_json(JSON))
    by_name = {e.name: e for e in merged.sets["topdown"][0].events}
    assert by_name["slots_backend"].config == 0x100001FA0
    assert by_name["slots_backend"].source.startswith("perf list: ")
    assert by_name["ops_retired"].config == 0xC1
    assert by_name["ops_retired"].source.endswith("perf list agrees")
    assert "perf list" not in by_name["ops_dispatched"].source
    assert len(notes) == 1
    assert notes[0].startswith("slots_backend: perf lists de_no_dispatch_per_slot.backend_stalls")
    choice = pmu.choose("amd_zen5", 5, known=merged)
    assert choice.groups[0][3].config == 0x100001FA0


def test_a_perf_that_does_not_know_the_cpu_changes_nothing() -> None:
    listing = perf_list.parse_json('[{"EventName": "cycles", "EventType": "Hardware event"}]')
    for table in TABLES.values():
        merged, notes = perf_list.merge(table, listing)
        assert (merged, notes) == (table, ())
        assert perf_list.top_down(table, listing) == table


def arm_listing() -> perf_list.Listing:
    """A made CPU with the shape of Arm's tables: percentages, #slots, a shared metric."""
    events = {"stall_slot_frontend": 0x3E, "stall_slot_backend": 0x3D, "op_retired": 0x3A}
    events |= {"op_spec": 0x3B, "stall_slot": 0x3F}
    entries: list[dict[str, str]] = [
        {"EventName": name, "Encoding": f"armv9_pmu/event={number:#x}/"}
        for name, number in events.items()
    ]
    used = "(1 - STALL_SLOT / (#slots * CPU_CYCLES))"
    entries += [
        {"MetricName": name, "MetricExpr": text, "ScaleUnit": unit, "MetricGroup": "TopdownL1"}
        for name, text, unit in (
            ("frontend_bound", "100 * STALL_SLOT_FRONTEND / total_slots", "1percent of slots"),
            ("backend_bound", "stall_slot_backend / (#slots * cpu_cycles)", "100%"),
            ("retiring", f"op_retired / op_spec * {used}", "100%"),
            ("bad_speculation", f"100 * ((1 - op_retired / op_spec) * {used})", "1percent"),
        )
    ]
    entries.append({"MetricName": "total_slots", "MetricExpr": "#slots * CPU_CYCLES"})
    return perf_list.parse_json(json.dumps(entries))


def test_an_unknown_cpu_gets_its_shares_from_perfs_metrics() -> None:
    known = perf_list.top_down(TABLES["generic"], arm_listing(), slots=10)
    choice = pmu.choose("generic", 7, known=known)
    assert [e.name for e in choice.groups[0]] == [
        *("cycles", "instructions", "stall_slot_frontend", "stall_slot_backend"),
        *("op_retired", "op_spec", "stall_slot", "task_clock"),
    ]
    assert choice.groups[0][2].type == "armv9_pmu"
    assert choice.notes == ()
    counts = pd.DataFrame(
        {
            "cycles": [100, 0],
            "instructions": [100, 0],
            "stall_slot_frontend": [200, 0],
            "stall_slot_backend": [300, 0],
            "stall_slot": [500, 0],
            "op_retired": [60, 0],
            "op_spec": [80, 0],
        }
    )
    metrics = formulas.metrics(counts, "generic", known)
    shares = metrics[["frontend_bound", "backend_bound", "retiring", "bad_speculation"]]
    assert shares.iloc[0].tolist() == pytest.approx([0.2, 0.3, 0.375, 0.125])
    assert shares.iloc[1].isna().all()
    assert metrics["ipc"].iloc[0] == 1
    assert "retiring" not in formulas.metrics(counts.drop(columns="op_spec"), "generic", known)


def test_perfs_metrics_can_be_kept_with_a_run() -> None:
    known = perf_list.top_down(TABLES["generic"], arm_listing(), slots=10)
    texts = json.loads(json.dumps(perf_list.saved_metrics(known)))
    back = perf_list.with_saved_metrics(TABLES["generic"], texts)
    events = {name for metric in known.expressions.values() for name in metric.names}
    counts = pd.DataFrame({name: [float(3 + i), 7.0] for i, name in enumerate(sorted(events))})
    pd.testing.assert_frame_equal(
        formulas.metrics(counts, "generic", back), formulas.metrics(counts, "generic", known)
    )
    assert (
        perf_list.with_saved_metrics(
            TABLES["generic"], {"retiring": "a if b", "x": "a"}
        ).expressions
        == {}
    )


def test_one_call_gives_the_table_of_this_machine(tmp_path: Path) -> None:
    zen5 = Cpu("AuthenticAMD", 26, 2, 1, "", "x86_64", "amd_zen5", False)
    assert perf_list.table(zen5, str(tmp_path / "none")) == (TABLES["amd_zen5"], ())


def test_shares_that_cannot_all_be_read_leave_the_generic_set() -> None:
    generic = TABLES["generic"]
    assert perf_list.top_down(generic, arm_listing()) == generic  # #slots is not known
    listing = arm_listing()
    del listing.events["op_spec"]
    assert perf_list.top_down(generic, listing, slots=10) == generic


def test_a_cpu_with_a_formula_keeps_it() -> None:
    zen5 = TABLES["amd_zen5"]
    assert perf_list.top_down(zen5, arm_listing(), slots=10) == zen5


def value(text: str, others: dict[str, str] | None = None, **columns: float) -> float:
    read = expression.read(text, others or {}, {"#slots": 5.0}, str)
    return float(read.value({k: np.array(v, dtype=float) for k, v in columns.items()}))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("(1 + 2) * -3", -9),
        ("8 / 4 / 2", 1),
        ("10 - 4 - 3", 3),
        ("max(1 - (a + b), 0)", 0),
        ("min(a, b) + d_ratio(a, b)", 4.5),
        ("#slots * a", 25),
        ("1e3 * A", 5000),
        ("half + half", 5),
    ],
)
def test_expressions_compute(text: str, result: float) -> None:
    assert value(text, {"half": "a / 2"}, a=5, b=2) == result


def test_nothing_to_divide_by_is_nan() -> None:
    assert np.isnan(value("a / b", a=1, b=0))
    assert np.isnan(value("d_ratio(a, b)", a=0, b=0))


@pytest.mark.parametrize(
    "text",
    [
        *("a if #SMT_on else b", "a < b", "a +", "(a", "a b", "", "has_event(a)", "#num_cpus"),
        *("cpu@a\\,cmask\\=1@", "loop", "max(a)", "3x", "1e999", "__import__('os')"),
        "+".join(["a"] * 1000),
        *("(" * 5000, "(" * 200 + "a" + ")" * 200),
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(expression.ExpressionError):
        expression.read(text, {"loop": "loop + 1"}, {}, str)


@example("topdown\\-retiring / a")
@example("_\\-1")
@given(st.text(alphabet="ab1.(),+-*/ #\\ed_ratiomnx", max_size=60))
def test_any_expression_is_read_or_refused(text: str) -> None:
    try:
        read = expression.read(text, {"a": "b + d", "d": "a * a"}, {}, str)
    except expression.ExpressionError:
        return
    columns = {name: np.array([0.5, 3, 7]) + i for i, name in enumerate(sorted(read.names))}
    again = expression.read(read.text, {}, {}, str)
    assert again.names == read.names
    with np.errstate(all="ignore"):
        assert np.array_equal(again.value(columns), read.value(columns), equal_nan=True)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["EventName", "Encoding", "MetricName", "MetricGroup", "ScaleUnit", "x"]
            ),
            inside,
            max_size=5,
        )
    ),
)


@given(_json.map(json.dumps) | st.text())
def test_any_json_is_a_listing(text: str) -> None:
    listing = perf_list.parse_json(text)
    perf_list.merge(TABLES["amd_zen5"], listing)
    perf_list.top_down(TABLES["generic"], listing, slots=8)


@given(st.text(alphabet=" ab[]/=,01\n\tx", max_size=300))
def test_any_text_is_a_listing(text: str) -> None:
    perf_list.merge(TABLES["amd_zen5"], perf_list.parse_details(text))


def test_no_perf_is_an_empty_listing(tmp_path: Path) -> None:
    assert perf_list.read(str(tmp_path / "perf")) == perf_list.Listing()


def test_a_perf_without_json_is_asked_for_details(tmp_path: Path) -> None:
    (tmp_path / "details").write_text(DETAILS)
    perf = tmp_path / "perf"
    perf.write_text(
        "#!/bin/sh\n"
        f'case "$*" in "list --details") cat {tmp_path}/details;;\n'
        '*) echo "Error: unknown switch" >&2; exit 129;; esac\n'
    )
    perf.chmod(perf.stat().st_mode | stat.S_IXUSR)
    assert perf_list.read(str(perf)).events["ex_ret_ops"].encoding == "cpu/event=0xc1/"
