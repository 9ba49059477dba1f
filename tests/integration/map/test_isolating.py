"""Operations of real programs, isolated under a real perf."""

import bz2
import lzma
import os
import shlex
import shutil
import subprocess
import sys
import time
import zlib

import pytest

from lotus.common.errors import LotusError
from lotus.mapping import isolated_runner
from lotus.mapping.isolated_samples import load
from tests.integration.conftest import PROGRAMS, PYTHON, WARM, environment


@pytest.fixture(scope="session")
def perf(tmp_path_factory):
    """Skips where perf cannot sample a process."""
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    output = tmp_path_factory.mktemp("perf") / "perf.data"
    words = ["perf", "record", "-N", "-e", "cpu-clock:u", "-k", "CLOCK_MONOTONIC"]
    words += ["-o", str(output)]
    tried = subprocess.run([*words, "--", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"perf cannot sample here: {tried.stderr.strip()[:200]}")


@pytest.fixture(scope="session")
def isolated(torch, perf, tmp_path_factory):
    """isolated(pipeline, workers=0): the isolation, what the program wrote, what it printed."""
    known = {}

    def run(name, workers=0, **options):
        key = (name, workers, tuple(options.items()))
        if key not in known:
            folder = tmp_path_factory.mktemp("isolated")
            known[key] = start(
                folder, [WARM, PROGRAMS / "transforms/isolate_pipelines.py", name, workers], options
            )
        return known[key]

    return run


def start(folder, words, options):
    """In a process of its own, as its standard streams are the program's."""
    truth, directory = folder / "truth", folder / "R"
    options = {"runs": 4, "budget_s": 0.7, "gap_s": 0.02, **options}
    loader = options.pop("loader", None)
    code = f"""\
import pathlib
from lotus.mapping import isolated_runner as isolating
try:
    plan = isolating.IsolationPlan(**{options!r})
    found = isolating.isolate(sys.argv[2:], pathlib.Path(sys.argv[1]), plan, loader={loader!r})
    (pathlib.Path(sys.argv[1]).parent / "notes").write_text("\\n".join(found.notes))
except isolating.LotusError as error:
    sys.exit(f"LotusError: {{error}}")
"""
    root = str(PROGRAMS.parents[2])
    env = environment({"TRUTH": str(truth)})
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}", directory]
        + [str(word) for word in words],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    written = truth.read_text() if truth.exists() else ""
    return ended, written, directory


def result(run):
    ended, _, directory = run
    assert ended.returncode == 0, ended.stderr
    return load(directory)


def sampled(isolated, pipeline, workers=0):
    """The isolation; with more time if a busy machine left too few samples to tell libraries."""
    for options in ({}, {"budget_s": 3}, {"budget_s": 12}):
        isolation = result(isolated(pipeline, workers, **options))
        samples = isolation.functions.groupby("operation")["samples"].sum()
        operations = set(isolation.operations["operation"]) & set(EXPECTED)
        if operations and all(samples.get(name, 0) >= 10 for name in operations):
            break
    return isolation


LIBRARIES = ("lzma", "bz2", "libz")


def libraries(functions, operation):
    """Of the libraries that do the work, those with a tenth of an operation's samples or more."""
    rows = functions[functions["operation"] == operation]
    samples = rows.groupby("module")["samples"].sum()
    many = samples.index[samples >= 0.1 * samples.sum()]
    return {known for known in LIBRARIES for name in many if known in name.replace("zlib", "libz")}


EXPECTED = {"Loader": {"lzma"}, "Squeeze": {"bz2"}, "Pack": {"libz"}}


@pytest.mark.parametrize(
    ("pipeline", "workers"),
    [("items", 0), ("items", 2), ("loading", 0), ("batches", 0), ("stream", 0), ("stream", 1)],
)
def test_each_operation_has_its_own_functions(isolated, pipeline, workers):
    # GIVEN a program whose reading and whose operations use a library each
    isolation = sampled(isolated, pipeline, workers)
    # THEN each is isolated, and its library is found under it and under no other
    names = set(isolation.operations["operation"])
    assert names == {"Loader", "Squeeze", "Pack", "to_tensor", "collate"}
    for operation, expected in EXPECTED.items():
        assert libraries(isolation.functions, operation) == expected
    assert libraries(isolation.functions, "collate") == set()
    assert isolation.notes == []
    assert isolation.operations["runs"].between(1, 4).all()  # as the machine has time


def test_a_data_set_without_operations(isolated):
    isolation = sampled(isolated, "plain")
    assert set(isolation.operations["operation"]) == {"Loader", "collate"}
    assert libraries(isolation.functions, "Loader") == {"lzma"}


def test_a_picture_is_decoded_where_its_pixels_are_asked_for(isolated):
    # GIVEN a loader that opens pictures and leaves their decoding to the first operation
    for turn in range(3):  # a machine that stands still makes a quick one slow
        run = isolated("pictures", runs=4 + turn)
        if "No module named 'PIL'" in run[0].stderr:
            pytest.skip("Pillow is not installed")
        took = result(run).operations.set_index("operation")["call_ns"]
        if took["decode"] > 5 * max(took["Loader"], took["size_of"]):
            break
    # THEN copying the inputs did not decode them
    assert took["decode"] > 5 * took["Loader"]
    assert took["decode"] > 5 * took["size_of"]


def cpu_of_one():
    """{operation: ns} of CPU that its library takes here at least; wall time tells how busy it is,
    too, and so does CPU time of a virtual machine that stands still."""
    text = bytes(range(256)) * 40  # of the program
    work = {
        "Loader": lambda: lzma.compress(text + b"\0", preset=0),
        "Squeeze": lambda: bz2.compress(text),
        "Pack": lambda: zlib.compress(text, 1),
    }
    taken = {}
    for name, once in work.items():
        tries = []
        for _ in range(50):
            start = time.thread_time_ns()
            once()
            tries.append(time.thread_time_ns() - start)
        taken[name] = min(tries)
    assert set(taken) == set(EXPECTED)
    return taken


def test_times_for_a_mapping_are_those_of_one_sample(isolated):
    # GIVEN operations that are called once a sample, and collate once a batch of 8
    isolation = result(isolated("items"))
    operations = isolation.operations.set_index("operation")
    assert operations["calls_a_sample"].to_dict() == {
        "Loader": 1,
        "Squeeze": 1,
        "Pack": 1,
        "to_tensor": 1,
        "collate": 1 / 8,
    }
    # THEN the time of all functions of a run is the CPU time of one sample
    cpu = (
        isolation.a_sample()
        .groupby(["operation", "run"])["cpu_ns"]
        .sum()
        .groupby("operation")
        .mean()
    )
    for name, alone in cpu_of_one().items():
        assert 0.3 * alone < cpu[name] < 1.25 * operations["call_ns"][name]
    assert (isolation.a_sample()["samples"] == isolation.functions["samples"]).all()


def test_the_program_neither_trains_nor_runs_its_last_lines(isolated):
    # GIVEN a program that would save something in `finally` and in an exit handler
    ended, written, _ = isolated("items", 2)
    # THEN none of it ran, what it printed is there, and nothing else was printed
    assert (ended.returncode, written) == (0, "")
    assert (ended.stdout, ended.stderr) == ("starts\n", "")


def test_the_largest_loader_is_taken(isolated):
    isolation = result(isolated("two"))
    assert "Squeeze" in set(isolation.operations["operation"])


def test_a_loader_is_chosen_by_number(isolated):
    first = isolated("two", loader=0)
    assert set(result(first).operations["operation"]) == {"Loader", "collate"}
    second = isolated("two", loader=1)
    assert "Squeeze" in set(result(second).operations["operation"])
    # the first one was iterated as ever, until the second one was
    assert second[1] == "trained on 8\n" * 8


def test_an_operation_that_fails_is_named(isolated):
    isolation = result(isolated("fails"))
    # what comes before it is there; what comes behind it has no input, nor has collate
    assert set(isolation.operations["operation"]) == {"Squeeze"}
    text = "\n".join(isolation.notes)
    assert "fails was not isolated: it raised ValueError: never works" in text
    assert "to_tensor was not isolated: it was not called" in text
    assert "Loader was not isolated: no sample came" in text
    assert "fails raised ValueError: never works (in 16 samples)" in text


def test_an_operation_that_fails_later_is_left_out(isolated):
    isolation = result(isolated("sometimes"))
    assert "Sometimes was not isolated: it raised RuntimeError: not again" in isolation.notes
    assert not (isolation.functions["operation"] == "Sometimes").any()
    assert {"Squeeze", "Pack", "Loader"} <= set(isolation.operations["operation"])


def test_a_program_that_dies_leaves_what_was_done(isolated):
    run = isolated("dies")
    assert "Squeeze" in set(result(run).operations["operation"])
    notes = (run[2].parent / "notes").read_text()
    assert notes == "the program ended (exit code 7) before all operations were isolated"


def test_an_input_that_cannot_be_copied_is_named(isolated):
    isolation = result(isolated("locks"))
    assert any(
        note.startswith("unlock was not isolated: its input cannot be") for note in isolation.notes
    )
    assert {"lock", "Squeeze", "Pack"} <= set(isolation.operations["operation"])


def test_buckets_and_samples_agree(isolated):
    # GIVEN an isolated program
    isolation = result(isolated("items"))
    intervals, operations = isolation.intervals, isolation.operations.set_index("operation")
    # THEN the buckets are disjoint, a gap lies before each run, and the samples of an operation
    # are no more than its buckets had room for
    assert (intervals["end_ns"] > intervals["start_ns"]).all()
    assert (intervals["start_ns"].iloc[1:].to_numpy() >= intervals["end_ns"].iloc[:-1]).all()
    keys = intervals["operation"] + intervals["run"].astype(str)
    apart = intervals["start_ns"].to_numpy()[1:] - intervals["end_ns"].to_numpy()[:-1]
    assert (apart[(keys.to_numpy()[1:] != keys.to_numpy()[:-1])] >= 20_000_000).all()
    spent = (intervals["end_ns"] - intervals["start_ns"]).groupby(intervals["operation"]).sum()
    cpu = isolation.functions.groupby("operation")["cpu_ns"].sum()
    for name in EXPECTED:
        # chance is less than a quarter of that
        assert 0 < cpu[name] <= 1.25 * spent[name] + 5_000_000
        assert operations["capture"][name] >= operations["capture_run"][name] > 0
        assert operations["reached"][name] == (operations["capture"][name] >= 0.95)


def test_a_program_without_a_loader(isolated):
    ended, written, _ = isolated("none")
    assert ended.returncode == 1
    assert (
        "LotusError: the program ended (exit code 0) before a loader could be isolated"
        in ended.stderr
    )
    assert written == "finally\nexit handler\n"


def test_several_programs_in_a_row(torch, perf, tmp_path):
    # GIVEN a script that trains twice
    program = shlex.join([WARM, str(PROGRAMS / "transforms/isolate_pipelines.py"), "items", "0"])
    run = start(tmp_path, ["bash", "-c", f"{program} && {program} && echo both"], {})
    # THEN the first is isolated and the second does not train either
    assert "Squeeze" in set(result(run).operations["operation"])
    assert run[0].stdout == "starts\nstarts\nboth\n"
    assert run[1] == ""


def test_a_command_that_does_not_exist(perf, tmp_path):
    with pytest.raises(LotusError, match="command not found"):
        isolated_runner.isolate(["no-such-command"], tmp_path / "R")


def test_without_perf(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LotusError, match="perf is not installed"):
        isolated_runner.isolate([sys.executable, "-c", ""], tmp_path / "R")


def test_a_directory_of_something_else_is_left_alone(perf, tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(LotusError, match="not empty"):
        isolated_runner.isolate(["true"], tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_a_job_of_two_ranks(torch, perf, tmp_path):
    # GIVEN a job whose ranks iterate a loader each
    job = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended, _, directory = start(tmp_path, [*job, PROGRAMS / "ranks/ranked.py"], {})
    # THEN one of them is isolated, and both end without an error
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    isolation = load(directory)
    assert set(isolation.operations["operation"]) == {"Loader", "collate"}
    assert isolation.intervals["pid"].nunique() == 1
    assert isolation.notes == []


def test_a_perf_that_did_not_end_well(torch, perf, tmp_path, monkeypatch):
    # GIVEN a perf that never says that it wrote its file to the end
    fake = tmp_path / "bin" / "perf"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nexec {shutil.which("perf")} "$@" 2>/dev/null\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    run = start(tmp_path, [WARM, PROGRAMS / "transforms/isolate_pipelines.py", "plain", 0], {})
    # THEN what it wrote is there, and a note says that there may be more
    assert set(result(run).operations["operation"]) == {"Loader", "collate"}
    notes = (tmp_path / "notes").read_text()
    assert notes == "perf.data ends early: perf ended without a message"


def test_a_perf_that_may_not_sample(torch, tmp_path, monkeypatch):
    # GIVEN a perf that ends with an error as soon as it is attached
    fake = tmp_path / "bin" / "perf"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'perf_event_paranoid setting is 4' >&2\nexit 255\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    ended, written, _ = start(
        tmp_path, [WARM, PROGRAMS / "transforms/isolate_pipelines.py", "items", 0], {}
    )
    # THEN it is said how to allow it, and the program was ended and did not train
    assert ended.returncode == 1
    assert "LotusError: perf cannot sample the program: perf may not" in ended.stderr
    assert written == ""
