"""Python stacks go to operations by their frames."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.common.errors import LotusError
from lotus.inside.common.guard import HOOK_FILE
from lotus.joining.python_stacks import UNKNOWN, _Places, label, python_functions

TREE = [
    # parent, function, file, line
    (-1, "<module>", "train.py", 9),
    (0, "instrument.<locals>.fetch", HOOK_FILE, 1),
    (1, "Data.__getitem__", "data.py", 30),
    (2, "Timers.__init__.<locals>.operation.<locals>.one", HOOK_FILE, 5),
    (3, "Module._call_impl", "torch/module.py", 1700),
    (4, "Crop.forward", "transforms.py", 105),
    (5, "resize", "functional.py", 7),
    (3, "Odd.__call__", "elsewhere.py", 3),
    (2, "Recorder.add", "/x/lotus/inside/trace/recorder.py", 3),
    (1, "instrument.<locals>.collate", HOOK_FILE, 9),
    (9, "default_collate", "collate.py", 12),
    (0, "Net.forward", "transforms.py", 105),
]


def test_the_innermost_hook_and_the_lines_above_it_say_what_runs():
    nodes = pd.DataFrame(TREE, columns=["parent", "function", "file", "line"])
    places = _Places([("transforms.py", 100, 120, "Crop"), ("transforms.py", 90, 300, "Outer")])
    assert label(nodes, places) == [
        ("", ""),
        ("fetch", ""),
        ("fetch", ""),
        ("operation", UNKNOWN),
        ("operation", UNKNOWN),
        ("operation", "Crop"),
        ("operation", "Crop"),
        ("operation", UNKNOWN),
        ("lotus", ""),
        ("collate", ""),
        ("collate", ""),
        ("", ""),  # the model is no operation, though its lines are those of one
    ]


def test_operations_that_inherit_one_function_are_named_together():
    places = _Places([("a.py", 1, 5, "Busy"), ("a.py", 1, 5, "Light"), ("a.py", 1, 5, "Busy")])
    assert places.find("a.py", 3) == "Busy or Light"
    assert places.find("a.py", 6) is None
    assert places.find("b.py", 3) is None


SLICE = {"file": "0.json", "start_ns": 1, "seen_ns": 2, "end_ns": 10**9}


@pytest.mark.parametrize(
    ("recorder", "why"),
    [
        ({"slices": [SLICE] * 1000}, "run.json names a file twice"),
        ({"slices": [SLICE], "rate": float("inf")}, "cannot convert float infinity"),
        ({"slices": [SLICE], "rate": 10**10}, "its rate is 10000000000"),
        ({"slices": [SLICE], "rate": -5}, "its rate is -5"),
        ({"slices": [{**SLICE, "end_ns": float("inf")}]}, "cannot convert float infinity"),
        ({"slices": [3]}, "cannot be read"),
    ],
)
def test_what_run_json_may_say_of_slices_is_a_line(tmp_path, recorder, why):
    (tmp_path / "py-spy").mkdir()
    (tmp_path / "py-spy" / "0.json").write_text(json.dumps([]))
    run = SimpleNamespace(
        path=tmp_path,
        manifest={"recorders": {"py_spy": recorder}},
        operations=pd.DataFrame({"file": [], "first": [], "last": [], "operation": []}),
        workers=pd.DataFrame({"pid": [], "end_ns": []}),
    )
    with pytest.raises(LotusError, match=why):
        python_functions(run)
