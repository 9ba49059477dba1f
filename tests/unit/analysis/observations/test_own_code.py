"""The function that the data set's own code spends its time in, from stacks."""

import json
from pathlib import Path

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.observations.own_code import (
    hot_callee,
    hot_functions,
    hot_lines,
    of_program,
    running_beside,
)
from lotus.analysis.verdict.verdict import verdict
from lotus.inside.common.guard import HOOK_FILE
from lotus.reading.launcher import launcher_record, own_code_table
from tests.unit.simulated import Plan

BELOW = f"<module> (train.py:9);fetch ({HOOK_FILE}:1);fetch (/x/torch/fetch.py:50)"
HOOK = "one (/x/lotus/inside/trace/op_hooks.py:7)"


def table(folder: Path, stacks: list[str]) -> pd.DataFrame:
    (folder / launcher_record.NAME).write_text(json.dumps({"own_code": stacks}))
    return own_code_table.table(launcher_record.read(folder))


def test_frames_are_those_above_the_hooks(tmp_path: Path) -> None:
    rows = table(tmp_path, [f"{BELOW};{HOOK};__getitem__ (data.py:4);parse (data.py:8) 7"])
    assert rows["function"].tolist() == ["__getitem__", "parse"]
    assert rows["depth"].tolist() == [0, 1]
    assert rows["samples"].tolist() == [7, 7]


def test_the_text_of_a_line_is_shown_without_secrets(tmp_path: Path) -> None:
    stacks = [
        f"{BELOW};{HOOK};__getitem__ (/d.py:4);f (/d.py:9) 7",
        "main (/d.py:1)",
        f"{BELOW};{HOOK};g (/d.py:5) 7",
    ]
    texts = {"/d.py:9": "get(token='hf_abcdefghijklmnopqrstuvwxyzabcdefgh')", "/d.py:5": 7}
    record = {"own_code": stacks, "own_code_texts": texts}
    (tmp_path / launcher_record.NAME).write_text(json.dumps(record))
    rows = own_code_table.table(launcher_record.read(tmp_path))
    first, second, third = rows["text"]
    assert (first, third) == ("", "")
    assert second.startswith("get(token=")
    assert "hf_" not in second


@pytest.mark.parametrize(
    "stacks",
    [
        ["_start (other.py:9);step (train.py:12) 7"],  # not of the main thread
        ["<module> (train.py:9);__next__ (/x/torch/utils/data/dataloader.py:9) 7"],  # a wait
        ["", "x", "a (b:1)", f"{BELOW};{HOOK} 7", 5],
        [f"{BELOW};{HOOK};f (data.py:99999999999999999999) 7"],
    ],
)
def test_what_is_no_stack_of_a_fetch_is_left_out(tmp_path: Path, stacks: list[str]) -> None:
    assert not len(table(tmp_path, stacks))


def test_the_chain_ends_where_no_callee_has_more_than_half(tmp_path: Path) -> None:
    got = f"{BELOW};{HOOK};__getitem__ (data.py:4)"
    rows = table(
        tmp_path,
        [
            f"{got};parse (data.py:8);split (text.py:1) 4",
            f"{got};parse (data.py:9);join (text.py:5) 5",
            f"{got};parse (data.py:9) 3",
            f"{got} 1",
        ],
    )
    chain = hot_functions(rows, "fetch")
    assert [each.function for each in chain] == ["__getitem__", "parse"]
    assert (chain[-1].file, chain[-1].line) == ("data.py", 9)
    assert chain[-1].share == pytest.approx(12 / 13)


@pytest.mark.parametrize(("at_nine", "quoted"), [(8, True), (4, False)])
def test_a_line_is_quoted_if_it_has_most_of_its_function(
    tmp_path: Path, at_nine: int, quoted: bool
) -> None:
    got = f"{BELOW};{HOOK};__getitem__ (data.py:4);parse (data.py"
    rows = table(
        tmp_path,
        [f"{got}:{line}) {count}" for line, count in ((7, 3), (8, 3), (9, at_nine))],
    )
    rows["text"] = [f"line {line}" for line in rows["line"]]
    *_, last = hot_functions(rows, "fetch")
    assert str(last) == "parse (data.py:9)"
    assert last.quoted == ("parse (57% at data.py:9: `line 9`)" if quoted else str(last))


def test_a_line_that_has_nearly_all_of_its_function_is_quoted_alone(tmp_path: Path) -> None:
    got = f"{BELOW};{HOOK};__getitem__ (data.py:4);parse (data.py"
    rows = table(tmp_path, [f"{got}:{line}) {count}" for line, count in ((7, 1), (9, 19))])
    rows["text"] = [f"line {line}" for line in rows["line"]]
    *_, last = hot_functions(rows, "fetch")
    assert last.quoted == "parse (data.py:9: `line 9`)"


def test_a_caller_is_named_with_the_line_that_calls_the_next_function(tmp_path: Path) -> None:
    got = f"{BELOW};{HOOK};__getitem__ (data.py"
    rows = table(
        tmp_path,
        [f"{got}:4) 9", f"{got}:5);parse (data.py:20) 6", f"{got}:6);parse (data.py:20) 5"],
    )
    rows["text"] = [f"line {line}" for line in rows["line"]]
    assert [hot.at_line for hot in hot_functions(rows, "fetch")] == [
        "__getitem__ (data.py:5: `line 5`)",
        "parse (data.py:20: `line 20`)",
    ]


def test_few_samples_tell_nothing(tmp_path: Path) -> None:
    assert (
        hot_functions(table(tmp_path, [f"{BELOW};{HOOK};__getitem__ (data.py:4) 4"]), "fetch") == []
    )
    assert (
        hot_functions(own_code_table.table(launcher_record.read(tmp_path / "none")), "fetch") == []
    )


def test_the_cause_names_the_function(tmp_path: Path) -> None:
    run = Plan(own=20.0).run()
    run.own_code = table(tmp_path, [f"{BELOW};{HOOK};__getitem__ (d.py:4);parse (/a/d.py:8) 40"])
    first = verdict(scopes(run)[0]).causes[0]
    assert first.title == "the data set's own code: parse (d.py:8)"
    assert "__getitem__ (d.py:4) > parse (d.py:8)" in first.advice


def test_collate_is_told_from_the_data_set_and_its_function_is_named(tmp_path: Path) -> None:
    of_collate = f"_MapDatasetFetcher.fetch (/x/fetch.py:55);hooks.<locals>.collate ({HOOK_FILE}:9)"
    stacks = [
        f"{BELOW};{of_collate};Pad.__call__ (t.py:5);Pad.split (t.py:8) 30",
        f"{BELOW};{HOOK};__getitem__ (t.py:19) 20",
    ]
    run = Plan(collate=50.0).run()
    run.own_code = table(tmp_path, stacks)
    assert [each.function for each in hot_functions(run.own_code, "fetch")] == ["__getitem__"]
    first = verdict(scopes(run)[0]).causes[0]
    assert first.title.endswith("into a batch, most of it in Pad.split (t.py:8)")
    assert "100% of its stack samples were in Pad.split (t.py:8)." in first.advice
    assert first.remedy.place == "Pad.split (t.py:8)"
    # BUT of torch's own collate, nothing is said that the program could change
    library = "/x/lib/python3.11/site-packages/torch/utils/data/_utils/collate.py"
    run = Plan(collate=50.0).run()
    run.own_code = table(tmp_path, [f"{BELOW};{of_collate};default_collate ({library}:5) 30"])
    assert verdict(scopes(run)[0]).causes[0].title.endswith("into a batch")


@pytest.mark.parametrize("times", [{"own": 20.0}, {"collate": 50.0}])
def test_tensors_are_taken_a_batch_at_a_time(times: dict[str, float]) -> None:
    run = Plan(**times).run()
    assert "BatchSampler" not in verdict(scopes(run)[0]).causes[0].advice
    run.loaders["dataset"] = "TensorDataset"
    assert "BatchSampler(RandomSampler(data)" in verdict(scopes(run)[0]).causes[0].advice


def test_data_sets_within_each_other_are_named_once(tmp_path: Path) -> None:
    run = Plan(own=20.0).run()
    nested = ";".join(["ConcatDataset.__getitem__ (/a/dataset.py:345)"] * 3)
    run.own_code = table(tmp_path, [f"{BELOW};{HOOK};{nested};f (/a/d.py:8) 40"])
    advice = verdict(scopes(run)[0]).causes[0].advice
    assert "in ConcatDataset.__getitem__ (dataset.py:345) > f (d.py:8)." in advice


def test_below_hooks_in_c_torchs_own_frames_say_nothing(tmp_path: Path) -> None:
    fetcher = "/x/torch/utils/data/_utils/fetch.py"
    of_torch = f"_MapDatasetFetcher.fetch ({fetcher}:54);<listcomp> ({fetcher}:54)"
    rows = table(tmp_path, [f"{BELOW};{HOOK};{of_torch};__getitem__ (data.py:4) 20"])
    assert [each.function for each in hot_functions(rows, "fetch")] == ["__getitem__"]


def test_the_sampler_is_told_from_the_data_set(tmp_path: Path) -> None:
    draws = (
        "<module> (t.py:1);_BaseDataLoaderIter._next_index (/x/torch/utils/data/dataloader.py:7)"
    )
    rows = table(
        tmp_path,
        [
            f"{draws};__iter__ (/x/site-packages/torch/s.py:3);pick (t.py:5) 30",
            f"{BELOW};{HOOK};__getitem__ (t.py:9) 20",
        ],
    )
    assert [each.function for each in hot_functions(rows, "sampler")] == ["__iter__", "pick"]
    run = Plan(sampler=50).run()
    run.own_code = rows
    first = verdict(scopes(run)[0]).causes[0]
    assert first.title == "the sampler, in the main process: pick (t.py:5)"


def test_lines_of_the_training_step_are_named(tmp_path: Path) -> None:
    # GIVEN stacks of a step, in a library below a line of the program, and at a line itself
    of_torch = "backward (/x/lib/python3.11/site-packages/torch/_tensor.py:9)"
    rows = table(
        tmp_path,
        [
            f"<module> (t.py:90);train (/a/t.py:41);{of_torch};run (/x/lib/python3.11/y.py:1) 20",
            f"<module> (t.py:90);train (/a/t.py:41);{of_torch} 10",
            "<module> (t.py:90);train (/a/t.py:47) 67",
            "<module> (t.py:90);train (/a/t.py:48) 3",
            f"<module> (t.py:90);fetch ({HOOK_FILE}:1);{HOOK};__getitem__ (d.py:4) 500",
        ],
    )
    # THEN its lines are told by their share, but for those with little
    lines = hot_lines(rows, "step")
    assert [str(line) for line in lines] == ["train (t.py:47)", "train (t.py:41)"]
    assert [line.share for line in lines] == pytest.approx([0.67, 0.3])
    # AND the verdict names them where the step sets the pace
    run = Plan(step=50).run()
    run.own_code = rows
    first = verdict(scopes(run)[0]).causes[0]
    assert first.title == "the training step, most of it at train (t.py:47)"
    assert "67% at train (t.py:47), 30% at train (t.py:41)" in first.advice
    # AND with what stands there, where that was recorded
    rows["text"] = ["gc.collect()" if line == 47 else "" for line in rows["line"]]
    advice = verdict(scopes(run)[0]).causes[0].advice
    assert "67% at train (t.py:47: `gc.collect()`), 30% at train (t.py:41)" in advice


def test_a_function_with_most_of_the_step_in_several_lines_is_named(tmp_path: Path) -> None:
    below = "<module> (t.py:90);train (/a/t.py:41);Metric.update (/a/m.py:5)"
    stacks = [f"{below};count (/a/m.py:{line}) 30" for line in (7, 8)]
    rows = table(tmp_path, [*stacks, "<module> (t.py:90);train (/a/t.py:47) 40"])
    assert str(hot_callee(rows, "step")) == "count (m.py:7)"
    run = Plan(step=50).run()
    run.own_code = rows
    title = verdict(scopes(run)[0]).causes[0].title
    assert title == "the training step, most of it in count (m.py:7)"
    # GIVEN that nearly all is in one function, which contains the step, THEN it says nothing
    rows = table(tmp_path, [f"<module> (t.py:90);train (/a/t.py:{line}) 30" for line in (41, 44)])
    assert hot_callee(rows, "step") is None
    # and a library's function is not named
    inside = "<module> (t.py:90);train (/a/t.py:41);run (/x/lib/python3.11/y.py:{}) 30"
    rows = table(tmp_path, [inside.format(1), inside.format(2), "<module> (t.py:90) 20"])
    assert str(hot_callee(rows, "step")) == "train (t.py:41)"


def test_a_step_that_asks_for_the_length_of_its_loader_is_a_step(tmp_path: Path) -> None:
    length = "DataLoader.__len__ (/x/torch/utils/data/dataloader.py:5)"
    rows = table(tmp_path, [f"<module> (t.py:9);train (/a/t.py:5);{length};pack (/a/t.py:7) 30"])
    assert [str(line) for line in hot_lines(rows, "step")] == ["pack (t.py:7)"]


def test_a_frame_made_to_take_long_is_left_out(tmp_path: Path) -> None:
    hostile = " (" * 1_000_000
    rows = table(tmp_path, [f"{BELOW};{HOOK};{hostile};__getitem__ (data.py:4) 7"])
    assert rows["function"].tolist() == ["__getitem__"]


def test_stacks_between_loops_are_a_part_of_their_own(tmp_path: Path) -> None:
    loader = "__next__ (/x/torch/utils/data/dataloader.py:700)"
    record = {
        "own_code": ["<module> (/t.py:9);train (/t.py:5) 20"],
        "pause_code": ["<module> (/t.py:9);keep (/t.py:7) 30", f"<module> (/t.py:9);{loader} 4"],
        "own_code_texts": {"/t.py:7": "table.to_csv(path)"},
    }
    (tmp_path / launcher_record.NAME).write_text(json.dumps(record))
    rows = own_code_table.table(launcher_record.read(tmp_path))
    assert [line.quoted for line in hot_lines(rows, "pause")] == [
        "keep (t.py:7: `table.to_csv(path)`)"
    ]
    assert [str(line) for line in hot_lines(rows, "step")] == ["train (t.py:5)"]


def test_below_code_that_a_library_makes_the_programs_own_function_is_named(tmp_path: Path) -> None:
    library = "/x/lib/python3.11/multiprocessing"
    calls = "__getitem__ (/train.py:20);__getitem__ (<string>:2)"
    calls += "".join(f";{name} ({library}/c.py:{line})" for line, name in enumerate("abcd", 1))
    rows = table(tmp_path, [f"{BELOW};{HOOK};{calls} 20"])
    run = Plan(own=5.0).run()
    run.own_code = rows
    first = verdict(scopes(run)[0]).causes[0]
    assert first.title == "the data set's own code: __getitem__ (train.py:20)"
    assert "were in __getitem__ (train.py:20) > b (c.py:2) > c (c.py:3) > d (c.py:4)." in (
        first.advice
    )
    # of a program that has no file, its functions are those
    rows = table(tmp_path, [f"{BELOW};{HOOK};__getitem__ (<string>:2);a ({library}/c.py:1) 20"])
    assert str(of_program(hot_functions(rows, "fetch"))) == "__getitem__ (<string>:2)"


THREAD = "Thread._bootstrap (/p/threading.py:1);Thread._bootstrap_inner (/p/threading.py:2)"
STEP = "<module> (/t.py:9);train (/t.py:5) 60"


def test_the_function_that_another_thread_runs_is_named(tmp_path: Path) -> None:
    run = f"{THREAD};Log.run (/log.py:3)"
    stacks = [f"{run};Log.run.<locals>.<genexpr> (/log.py:3) 20", f"{run[:-2]}4) 15", STEP]
    beside = running_beside(table(tmp_path, stacks))
    assert str(beside) == "Log.run (log.py:3)"


@pytest.mark.parametrize(
    "stacks",
    [
        [f"{THREAD};Log.run (/log.py:3) 60"],  # it sleeps
        [f"{THREAD};Log.run (/log.py:{row});wait (/p/threading.py:9) 30" for row in (3, 4)],
        [f"{THREAD};Log.run (/log.py:3) 50", f"{THREAD};Log.run (/log.py:4) 5"],
    ],
)
def test_a_thread_that_waits_runs_nothing(stacks: list[str], tmp_path: Path) -> None:
    assert running_beside(table(tmp_path, [*stacks, STEP])) is None
    assert len(table(tmp_path, [*stacks, STEP]).query("part == 'step'")) == 2


def test_without_samples_of_a_step_nothing_is_known_of_what_runs_beside_it(tmp_path: Path) -> None:
    stacks = [f"{THREAD};Log.run (/log.py:{row}) 30" for row in (3, 4)]
    assert running_beside(table(tmp_path, stacks)) is None
    assert running_beside(pd.DataFrame()) is None


def test_what_runs_inside_an_operation_is_not_the_data_sets_own_code(tmp_path: Path) -> None:
    # GIVEN hooks in C, which have no frames: stacks of the data set and of its transform
    item = f"{BELOW};__getitem__ (/d.py:4)"
    rows = table(
        tmp_path,
        [
            f"{item};Compose.forward (/x/c.py:52);Crop.forward (/x/t.py:68);resize (/x/i.py:9) 30",
            f"{item};open (/x/i.py:7) 20",
            "<module> (t.py:90);Crop.forward (/x/t.py:68);resize (/x/i.py:9) 11",
        ],
    )
    places = [("/x/t.py", 57, 73), ("", -1, -1)]
    operations = pd.DataFrame(places, columns=["file", "first", "last"])
    own = own_code_table.outside_operations(rows, operations)
    chain = [str(hot) for hot in hot_functions(own, "fetch")]
    assert chain[-2:] == ["__getitem__ (d.py:4)", "open (i.py:7)"]
    # AND a step may call the same function
    assert hot_callee(own, "step") is None
    assert set(own["part"]) == {"fetch", "step"}
    # GIVEN operations elsewhere in that file, THEN all stacks are kept
    operations["first"] = 70
    assert len(own_code_table.outside_operations(rows, operations)) == len(rows)


@pytest.mark.parametrize(("others", "named"), [(0, ["load (d.py:7)"]), (1, [])])
def test_few_samples_name_a_function_if_all_are_in_it(
    tmp_path: Path, others: int, named: list[str]
) -> None:
    stacks = [f"{BELOW};{HOOK};load (/d.py:7) {6 - others}", f"{BELOW};{HOOK};other (/d.py:9) 1"]
    rows = table(tmp_path, stacks[: 1 + others])
    assert [str(hot) for hot in hot_functions(rows, "fetch")] == named
