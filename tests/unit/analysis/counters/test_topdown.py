"""Which nodes of top-down level 2 an operation is bound by."""

import pandas as pd

from lotus.analysis.counters.topdown import ADVICE, MEANING, THRESHOLDS, meaning, nodes, remarks
from lotus.inside.common import alternative_files
from native_map.events.metrics import LEVEL_2, METRICS


def table(**shares):
    known = {node: 0.0 for group in LEVEL_2.values() for node in group}
    level_1 = dict.fromkeys(LEVEL_2, 0.0)
    return pd.DataFrame([{"operation": "Decode", "counted": 9, **level_1, **known, **shares}])


def test_a_node_is_told_where_it_and_its_parent_cross_their_thresholds():
    crossed = nodes(
        table(
            frontend_bound=0.25,
            frontend_latency=0.2,
            backend_bound=0.37,
            backend_memory=0.3,
            bad_speculation=0.05,
            mispredicted_branches=0.12,  # its parent does not cross
        )
    )
    assert crossed.rows["node"].tolist() == ["backend_memory", "frontend_latency"]
    assert crossed.rows["binding"].tolist() == [True, False]
    assert crossed.unbound == []


def test_contention_with_the_other_thread_is_a_row_of_its_own():
    crossed = nodes(table(smt_contention=0.3, backend_bound=0.37, backend_memory=0.3))
    assert crossed.rows["node"].tolist() == ["backend_memory", "smt_contention"]
    assert crossed.rows["binding"].tolist() == [True, False]
    assert crossed.rows["parent"].tolist() == ["backend_bound", ""]
    alone = nodes(table(smt_contention=0.3))
    assert alone.rows["node"].tolist() == ["smt_contention"]
    assert alone.unbound == ["Decode"]
    assert not len(nodes(table(smt_contention=0.05)).rows)


def test_where_no_node_crosses_that_is_told():
    crossed = nodes(table(retiring=0.6))
    assert not len(crossed.rows)
    assert crossed.unbound == ["Decode"]


def test_a_node_names_what_lotus_advise_can_measure():
    assert {name for names in ADVICE.values() for name in names} <= {*alternative_files.names()}
    assert set(ADVICE) <= set(MEANING)
    text = "(lotus advise measures draft_decode and torchvision_decode)"
    assert meaning("mispredicted_branches").endswith(text)
    assert meaning("backend_memory").endswith("in_place_normalize, late_float and early_crop)")
    assert meaning("pipeline_restarts") == MEANING["pipeline_restarts"]


def test_heavy_operations_need_no_threshold_of_retiring():
    crossed = nodes(table(retiring=0.3, heavy_operations=0.15))
    assert crossed.rows["node"].tolist() == ["heavy_operations"]


def test_without_level_2_nothing_is_said():
    crossed = nodes(pd.DataFrame([{"operation": "Decode", "counted": 9, "frontend_bound": 0.9}]))
    assert not len(crossed.rows)
    assert crossed.unbound == []


def level_1(frontend=0.2, **more):
    shares = {"frontend_bound": frontend, "backend_bound": 0.3, "retiring": 0.4}
    return pd.DataFrame([{"operation": "Decode", **shares, "bad_speculation": 0.1, **more}])


def test_that_level_2_was_not_counted_is_said_with_the_reason():
    assert remarks(level_1(), "amd_zen5") == [
        "Level 2 of top-down: lotus trace --counters=topdown2"
    ]
    for cpu, name in (("neoverse_v2", "Arm Neoverse V2"), ("intel_icelake", "Intel Ice Lake-SP")):
        (text,) = remarks(level_1(), cpu)
        assert text.startswith(f"lotus has no level 2 of top-down for this CPU ({name}")
    assert remarks(level_1(frontend_latency=0.1), "amd_zen5") == []
    assert remarks(table().drop(columns="retiring"), "amd_zen5") == []


def test_shares_that_do_not_sum_to_1_are_said():
    text = remarks(level_1(frontend=0.1, frontend_latency=0.1), "amd_zen4")
    assert text == [
        "The shares of level 1, each counted separately, sum to 90% of the slots in 1 of 1 rows; "
        "no share includes slots that the core's other thread had"
    ]
    assert (
        remarks(level_1(frontend=0.1, frontend_latency=0.1, smt_contention=0.1), "amd_zen4") == []
    )


def test_what_could_not_be_told_crosses_nothing():
    crossed = nodes(
        table(backend_bound=0.9, backend_memory=float("nan"), backend_core=float("nan"))
    )
    assert not len(crossed.rows)


def test_every_node_has_a_threshold_and_a_meaning():
    for parent, group in LEVEL_2.items():
        for node in (parent, *group):
            assert node in THRESHOLDS
            assert node in METRICS
        assert set(group) <= set(MEANING)
