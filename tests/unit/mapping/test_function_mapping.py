"""A mapping judged against the join, and laid over profiles with the times of a run."""

import dataclasses
import io

import pandas as pd
import pytest

import lotus
from lotus.cli import main
from lotus.common.errors import LotusError
from lotus.joining import sample_join
from lotus.mapping import function_mapping
from lotus.reporters.base.console import plain_console
from lotus.reporters.map import validation_report
from native_map.paper import paper_mapping as maps
from tests.logs import MS, START_NS, RunBuilder, Sample
from tests.unit.joining.test_sample_join import AT, batch, every_ms, recording


@pytest.fixture
def run(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    batch(builder.process(pid=100))
    return lotus.load(builder.end())


@pytest.fixture
def joined(run):
    mapped = sample_join.map_run(run, recording([AT - MS, *every_ms(), AT + 70 * MS]))
    # The library is on no disk, so that its functions have no names but this.
    return dataclasses.replace(mapped, functions=mapped.functions.assign(function="work"))


def a_mapping(function, *operations):
    rows = [
        {"operation": name, "run": number, "module": "libwork.so", "function": function,
         "samples": 5.0, "cpu_ns": 5e6}
        for name in operations for number in (1, 2)
    ]  # fmt: skip
    return maps.build(pd.DataFrame(rows), 2)


def test_seconds_are_those_of_operations_collate_and_the_data_set(run):
    seconds = function_mapping.seconds(run)
    assert seconds == pytest.approx(
        {"Decode": 0.040, "Flip": 0.010, "collate": 0.005, "Loader": 0.001}
    )


def test_an_operation_that_is_called_loader_keeps_its_own_seconds(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(pid=100)
    main.batch(0, start_ns=START_NS, samples=[Sample(1, 9 * MS, [("Loader", 4 * MS)])])
    assert function_mapping.seconds(lotus.load(builder.end()))["Loader"] == pytest.approx(0.004)


def test_without_a_mapping_samples_are_held_against_counts(joined):
    judged = function_mapping.judge(joined)
    assert judged.pairs is None
    rows = judged.table.set_index("operation")
    assert rows.loc["Decode", "err_joined"] == pytest.approx(0)
    assert rows["mapped"].isna().all()
    assert not rows["judged"].any()  # of 40 samples
    assert judged.summary["judged"].tolist() == [0]


def test_counts_of_a_clock_are_times_and_too_few_samples_are_said(joined):
    file = io.StringIO()
    validation_report.write(plain_console(file), function_mapping.judge(joined))
    (line,) = [line for line in file.getvalue().splitlines() if line.strip().startswith("Decode")]
    assert line.split()[:3] == ["Decode", "40", "40.0ms"]
    text = " ".join(file.getvalue().split())
    assert "no operation has 1,000 samples, the fewest that are judged here" in text


def test_a_mapping_that_gives_all_to_one_operation_is_as_wrong_as_it_is(joined):
    judged = function_mapping.judge(joined, a_mapping("work", "Decode"))
    rows = judged.table.set_index("operation")
    # All 52 samples are of the one function that it knows, 40 are Decode's.
    assert rows.loc["Decode", "mapped"] == pytest.approx(52 * MS)
    assert rows.loc["Decode", "err_mapped"] == pytest.approx(52 / 40 - 1)
    pairs = judged.pairs.set_index("operation")
    assert (pairs.loc["Decode", "precision"], pairs.loc["Decode", "recall"]) == (1, 1)


def test_what_the_run_does_not_know_is_told(joined):
    judged = function_mapping.judge(joined, a_mapping("work", "Decode", "Blur"))
    assert any("Blur" in note for note in judged.notes)
    assert set(judged.table["operation"]) >= {"Decode", "Flip"}


def test_without_truth_nothing_is_judged(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    batch(builder.process(pid=100), counted=False)
    mapped = sample_join.map_run(lotus.load(builder.end()), recording(every_ms()))
    with pytest.raises(LotusError, match=r"not counted.* --counters --perf --perf-kernel"):
        function_mapping.judge(mapped)


def test_a_count_of_other_modes_is_no_truth_and_said_so(run):
    user = recording(every_ms(), name="cpu-clock:u")
    with pytest.raises(LotusError) as caught:
        function_mapping.judge(sample_join.map_run(run, user))
    assert "cpu-clock:u was sampled in user space, but the exact task_clock" in str(caught.value)
    assert "--counters --perf --perf-kernel -o DIRECTORY -- COMMAND" in str(caught.value)
    assert str(caught.value).count("record") == 1


def test_counts_of_what_was_not_sampled_to_its_end_are_no_truth(run):
    first = sample_join.map_run(run, recording([AT + MS, AT + 2 * MS]))
    with pytest.raises(LotusError, match="from its begin to its end"):
        function_mapping.judge(first)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b"[1, 2]"])
def test_files_that_are_no_mapping_or_profile(tmp_path, content):
    file = tmp_path / "bad"
    file.write_bytes(content)
    with pytest.raises(LotusError):
        function_mapping.read(file)
    with pytest.raises(LotusError):
        function_mapping.apply(a_mapping("f", "Decode"), file)
    with pytest.raises(LotusError):
        function_mapping.apply(a_mapping("f", "Decode"), tmp_path / "none")
    with pytest.raises(LotusError):
        function_mapping.write(a_mapping("f", "Decode"), tmp_path)


def test_written_and_read_it_is_the_same(tmp_path):
    made = a_mapping("f", "Decode", "Flip")
    function_mapping.write(made, tmp_path / "m.json")
    again = function_mapping.read(tmp_path / "m.json")
    pd.testing.assert_frame_equal(again.functions, made.functions, check_dtype=False)


def test_the_mapping_comes_first(tmp_path, capfd):
    made, profile = tmp_path / "m.json", tmp_path / "report.txt"
    function_mapping.write(a_mapping("f", "Decode"), made)
    profile.write_text("# no mapping\n")
    assert main(["map", "apply", str(profile), str(made)]) == 2
    assert f"lotus map apply {made} {profile}" in capfd.readouterr().err
    assert main(["map", "apply", str(profile), str(profile)]) == 2
    assert "comes first" not in capfd.readouterr().err
