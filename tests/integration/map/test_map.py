"""`lotus map` of real recordings: functions under their operations, and nothing lost on the way."""

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import lotus
from lotus.recording import measurement_plan
from tests.integration.called import called
from tests.integration.conftest import LOTUS, PROGRAMS, PYTHON, environment
from tests.logs import as_recorded_here

COUNTED = ("--counters", "task_clock,page_faults")
SIZE = "96"
# operation -> what does its work: the libraries' own names, Python's modules, Python itself
WORK = {"Squeeze": "bz2", "Pack": "libz|zlib", "Spell": "python"}


def lotus_map(*words):
    return called("map", *words)


def process(*words):
    """The same as a process of its own."""
    return subprocess.run(
        [*LOTUS, "map", *map(str, words)], capture_output=True, text=True, env=environment({})
    )


def document(*words, run=lotus_map):
    ended = run(*words, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout, parse_constant=pytest.fail)


@pytest.fixture(scope="session")
def perf(tmp_path_factory):
    """The options that sample the CPU's clock here, with the kernel where we may; else a skip."""
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    output = tmp_path_factory.mktemp("perf") / "perf.data"
    for event, options in (
        ("cpu-clock", ("--perf-events", "cpu-clock", "--perf-kernel")),
        ("cpu-clock:u", ("--perf-events", "cpu-clock:u")),
    ):
        words = ["perf", "record", "-N", "-e", event, "-k", "CLOCK_MONOTONIC", "-o", str(output)]
        tried = subprocess.run([*words, "--", "true"], capture_output=True, text=True)
        if not tried.returncode:
            # Without rights perf leaves the kernel out and says so in the event's name only.
            words = ["perf", "evlist", "-i", str(output)]
            if (
                event.endswith(":u")
                or b":u" not in subprocess.run(words, capture_output=True).stdout
            ):
                return options
    pytest.skip(f"perf cannot sample here: {tried.stderr.strip()[:200]}")


@pytest.fixture(scope="session")
def counting():
    plan = measurement_plan.plan(COUNTED[1])
    if plan.counters is None or "task_clock" not in plan.counters:
        pytest.skip(f"task_clock cannot be counted here: {'; '.join(plan.notes)}")


@pytest.fixture(scope="session")
def recorded(pair, torch, perf):
    """A run with samples, and with counts where they can be made.

    With more work where the first had too few samples for what is asked of them: the kernel lowers
    perf's rate where its interrupts take long.
    """
    for size in (SIZE, str(8 * int(SIZE))):
        plain, run = pair("counted/counted_work.py", "1", size, options=(*COUNTED, *perf))
        assert (plain.code, plain.err) == (0, b"")
        assert (run.code, run.out, run.err) == (0, plain.out, b"")
        assert run.run.manifest["recorders"]["perf"]["problem"] is None
        if min(_samples_of(document(run.path, run=process), name) for name in WORK) >= 10:
            break
    return run.path


def _samples_of(table, operation):
    return sum(row["samples"] for row in table["functions"] if row["operation"] == operation)


@pytest.fixture(scope="session")
def uncounted(traced, torch):
    """A run of the same program with nothing but its times."""
    return traced("counted/counted_work.py", "0", "8").path


@pytest.fixture
def damaged(recorded, tmp_path):
    """damaged(bytes): the run with these in place of its perf.data."""

    def make(data):
        copy = tmp_path / "R"
        shutil.copytree(recorded, copy)
        (copy / "perf.data").write_bytes(data)
        return as_recorded_here(copy)

    return make


@pytest.fixture(scope="session")
def answer(recorded):
    return document(recorded, run=process)


def test_every_sample_is_in_the_books_and_in_the_functions(recorded, answer):
    lines = subprocess.run(
        ["perf", "script", "-F", "event", "-i", str(recorded / "perf.data")], capture_output=True
    ).stdout.splitlines()
    assert lines
    (books,) = answer["books"]
    assert books["recorded"] == len(lines)
    assert books["attributed"] + books["unattributed"] == len(lines)
    assert books["missing"] == 0
    for table in ("functions", "joined"):
        assert sum(row["samples"] for row in answer[table]) == len(lines)


@pytest.mark.parametrize("operation", WORK)
def test_each_operation_has_the_functions_of_its_library(answer, operation):
    mine = [row for row in answer["functions"] if row["operation"] == operation]
    samples = _samples_of(answer, operation)
    assert samples >= 10
    of = {
        name: sum(row["samples"] for row in mine if re.search(known, row["library"]))
        for name, known in WORK.items()
    }
    if of["Squeeze"] + of["Pack"] == 0 and operation != "Spell":
        pytest.skip("this Python has its libraries built in")
    assert of[operation] > 0.5 * samples
    # An edge can fall on the wrong side, a tenth of the samples cannot.
    others = {"Squeeze", "Pack"} - {operation}
    assert sum(of[name] for name in others) <= 0.1 * samples
    assert sum(row["share"] for row in mine if row["helper_of"] == "") == pytest.approx(1)
    assert all(row["low"] <= row["count"] <= row["high"] for row in mine)


def test_operations_have_their_times_and_what_was_counted(recorded, answer, counting):
    rows = {row["operation"]: row for row in answer["operations"]}
    size = int(lotus.load(recorded).manifest["command"][-1])
    for name in WORK:
        assert rows[name]["source"] == "exact"
        assert rows[name]["counted"] == rows[name]["intervals"] == size
        assert 0 < rows[name]["task_clock"] <= 1.03 * rows[name]["total_ns"] + 20_000 * size
    assert answer["counted"][0]["name"] == "task_clock"


@pytest.mark.parametrize("table", ["operations", "functions"])
def test_csv_is_the_same_table(recorded, answer, table):
    ended = lotus_map(recorded, "--csv", table)
    assert (ended.returncode, ended.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(ended.stdout)))
    assert len(rows) == len(answer[table])
    if table == "functions":
        assert [int(row["samples"]) for row in rows] == [row["samples"] for row in answer[table]]
    else:
        assert [row["operation"] for row in rows] == [row["operation"] for row in answer[table]]


def test_the_terminal_shows_operations_functions_and_all_samples(recorded, answer):
    ended = lotus_map(recorded, "--top", 2)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"{answer['books'][0]['recorded']:,} samples" in ended.stdout
    for operation in WORK:
        assert operation in ended.stdout
    assert "MISSING" not in ended.stdout


def test_the_report_includes_it(recorded):
    ended = subprocess.run(
        [*LOTUS, "report", str(recorded)], capture_output=True, text=True, env=environment({})
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Functions by samples" in ended.stdout
    assert re.search(r"All of it: lotus\s+map", ended.stdout)


def test_validate_holds_samples_against_counts(recorded, counting, perf, pair):
    if "--perf-kernel" not in perf:
        pytest.skip("perf may not sample the kernel here, which the exact count is with")
    path = recorded
    for turn in range(3):
        ended = lotus_map("validate", path, "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        got = json.loads(ended.stdout, parse_constant=pytest.fail)
        rows = {row["operation"]: row for row in got["operations"] if row["kind"] == "operation"}
        assert set(rows) == set(WORK)
        if all(-0.7 < row["err_joined"] < 1.5 for row in rows.values()):
            break
        # A second in which a virtual machine stands still is counted, and has no samples.
        options = (*COUNTED, *perf)
        path = pair("counted/counted_work.py", "1", SIZE, env={"TURN": str(turn)}, options=options)[
            1
        ].path
    for row in rows.values():
        assert row["exact"] > 0
        assert row["low"] <= row["joined"] <= row["high"]
        assert row["within_ci"] == (row["low"] <= row["exact"] <= row["high"])
        assert row["err_joined"] == pytest.approx(row["joined"] / row["exact"] - 1)
        # On a machine that others use too; tools/bench/accuracy/joined_counts.py measures errors.
        assert -0.7 < row["err_joined"] < 1.5
        assert row["judged"] == (row["samples"] >= 1000)
    (summary,) = got["summary"]
    assert summary["operations"] == len(got["operations"])
    text = lotus_map("validate", path)
    assert (text.returncode, text.stderr) == (0, "")
    assert all(name in text.stdout for name in WORK)


def one_line(ended):
    """The only line of a refusal."""
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("lotus: ")
    assert "Traceback" not in line
    return line


def test_without_samples_and_counts_there_is_nothing_to_map(uncounted):
    assert "lotus trace --counters --perf" in one_line(lotus_map(uncounted))
    assert "lotus trace --perf" in one_line(lotus_map("validate", uncounted))


def test_validate_refuses_without_truth(recorded, uncounted, perf):
    samples = recorded / "perf.data"
    line = one_line(lotus_map("validate", uncounted, "--perf-data", samples))
    assert "--counters" in line


def test_a_mapping_is_refused_before_the_program_runs_where_it_cannot_be_written(tmp_path):
    ran = tmp_path / "ran"
    program = [PYTHON, "-c", f"open({str(ran)!r}, 'w')"]
    line = one_line(lotus_map("build", "-o", tmp_path / "none" / "m.json", "--", *program))
    assert "No such file or directory; -o names another file" in line
    assert not ran.exists()


def test_no_run(tmp_path):
    assert str(tmp_path / "none") in one_line(lotus_map(tmp_path / "none"))
    one_line(lotus_map("validate", tmp_path / "none"))


BAD = {"empty": b"", "foreign": b"GIF89a" + bytes(200), "head": b"PERFILE2" + bytes(7)}


@pytest.mark.parametrize("name", [*BAD, "cut", "noise"])
def test_a_file_that_is_none(recorded, counting, damaged, name, tmp_path):
    """Named it is refused; the run's own leaves what was counted."""
    whole = (recorded / "perf.data").read_bytes()
    data = BAD.get(name, whole[:700] if name == "cut" else whole[:200] + bytes(range(256)) * 40)
    file = tmp_path / "bad.data"
    file.write_bytes(data)
    line = one_line(lotus_map(recorded, "--perf-data", file))
    run = damaged(data)
    ended = lotus_map(run)
    assert ended.returncode == 0
    assert all(name in ended.stdout for name in WORK)
    assert line.replace(str(file), "") == ended.stderr.strip().replace(str(run / "perf.data"), "")
    one_line(lotus_map("validate", run))
    report = called("report", run)
    assert report.returncode == 0
    assert report.stderr == ended.stderr


def test_half_a_file_gives_half_the_samples(recorded, answer, damaged):
    whole = (recorded / "perf.data").read_bytes()
    got = document(damaged(whole[: len(whole) // 2]))
    (books,) = got["books"]
    assert 0 < books["recorded"] < answer["books"][0]["recorded"]
    assert sum(row["samples"] for row in got["functions"]) == books["recorded"]
    assert any("truncated" in note for note in got["notes"])


def sampled(tmp_path, *command, options=("-k", "CLOCK_MONOTONIC")):
    file = tmp_path / "other.data"
    words = ["perf", "record", "-qN", "-e", "cpu-clock:u", *options, "-o", file, "--", *command]
    subprocess.run(words, check=True, capture_output=True)
    return file


BUSY = "for n in range(2000000): pass"


def test_samples_of_another_program_are_none_of_ours(uncounted, perf, tmp_path):
    got = document(uncounted, "--perf-data", sampled(tmp_path, PYTHON, "-c", BUSY))
    (books,) = got["books"]
    assert books["attributed"] == 0
    assert books["recorded"] == books["unattributed"] > 0
    assert any("no sample fell into an operation" in note for note in got["notes"])


def test_another_clock_of_another_program_cannot_be_aligned(uncounted, perf, tmp_path):
    file = sampled(tmp_path, PYTHON, "-c", BUSY, options=())
    line = one_line(lotus_map(uncounted, "--perf-data", file))
    assert "perf record -k CLOCK_MONOTONIC" in line


def test_a_recording_without_samples(uncounted, perf, tmp_path):
    file = sampled(tmp_path, "true", options=("-k", "CLOCK_MONOTONIC", "-c", "1000000000000"))
    assert "no samples" in one_line(lotus_map(uncounted, "--perf-data", file))


def test_a_recording_on_another_clock_of_the_run_itself(torch, trace_command, perf, tmp_path):
    """Aligned by when its workers began and ended, with the bound said; or refused where the
    machine was too busy to start them soon."""
    file = tmp_path / "clock.data"
    words = ["perf", "record", "-qN", "-e", "cpu-clock:u", "-o", file, "--"]
    program = [PYTHON, PROGRAMS / "counted/counted_work.py", "1", "48"]
    ended = trace_command(*words, *program)
    assert ended.code == 0, ended.err
    mapped = lotus_map(ended.path, "--perf-data", file, "--json")
    if mapped.returncode:
        assert mapped.returncode == 2
        assert "could only be aligned within" in mapped.stderr
        assert "perf record -k CLOCK_MONOTONIC" in mapped.stderr
        return
    got = json.loads(mapped.stdout)
    assert any("clock" in note for note in got["notes"])
    (books,) = got["books"]
    assert books["attributed"] > 0
    squeeze = [row for row in got["functions"] if row["operation"] == "Pack"]
    named = sum(row["samples"] for row in squeeze if re.search(WORK["Pack"], row["library"]))
    assert named > 0


@pytest.fixture(scope="session")
def mapping(torch, perf, tmp_path_factory):
    path = tmp_path_factory.mktemp("mapping") / "mapping.json"
    program = [PYTHON, PROGRAMS / "counted/counted_work.py", "0", "32"]
    built = process(
        "build", "--runs", 3, "--budget", 1.5, "--samples", 4, "-o", path, "--", *program
    )
    assert built.returncode == 0, built.stderr
    assert "operations are isolated, about 1.5 s each" in built.stderr
    assert all(name in built.stdout for name in WORK)
    return path


def report(rows):
    """(library, function, samples) as `perf report -n --stdio` prints them."""
    total = sum(count for _, _, count in rows)
    text = "# Samples: 1K of event 'cpu-clock'\n#\n"
    wide = max(len(library) for library, _, _ in rows)
    text += f"# Overhead  Samples  {'Shared Object':{wide}}  Symbol\n"
    text += f"# ........  .......  {'.' * wide}  ......\n#\n"
    for library, function, count in rows:
        mode = "k" if library.startswith("[kernel") else "."
        text += f"  {count / total:8.2%}  {count:7}  {library:{wide}}  [{mode}] {function}\n"
    return text


def all_of(got):
    """Samples in operations and left over; None where an operation has no function."""
    return sum(row["samples"] or 0 for row in (*got["operations"], *got["leftovers"]))


def test_build_and_apply(mapping, answer, tmp_path):
    """Back to the operations through a profile that has neither times nor threads."""
    sums = {}
    for row in answer["functions"]:
        key = row["library"], row["function"]
        sums[key] = sums.get(key, 0) + row["samples"]
    profile = tmp_path / "report.txt"
    profile.write_text(report([(*key, count) for key, count in sums.items() if count]))
    ended = lotus_map("apply", mapping, profile, "--json")
    assert ended.returncode == 0, ended.stderr
    got = json.loads(ended.stdout, parse_constant=pytest.fail)
    counts = {row["operation"]: row["samples"] for row in got["operations"]}
    assert set(WORK) <= set(counts)
    joined = {
        name: sum(row["samples"] for row in answer["joined"] if row["operation"] == name)
        for name in WORK
    }
    # What only one operation uses comes back to it; Python's functions are of all of them.
    for name in ("Pack", "Squeeze"):
        assert counts[name] >= 0.5 * joined[name]
    assert all_of(got) == pytest.approx(got["profile"]["totals"]["samples"])


def test_apply_to_what_perf_reports(mapping, recorded, answer, tmp_path):
    """All of it is in an operation or left over."""
    text = subprocess.run(
        ["perf", "report", "-n", "--stdio", "-i", str(recorded / "perf.data")],
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    profile = tmp_path / "report.txt"
    profile.write_text(text)
    ended = lotus_map("apply", mapping, profile, "--json", "--run", recorded)
    assert ended.returncode == 0, ended.stderr
    got = json.loads(ended.stdout, parse_constant=pytest.fail)
    total = got["profile"]["totals"]["samples"]
    assert total == answer["books"][0]["recorded"]
    assert all_of(got) == pytest.approx(total)
    shown = lotus_map("apply", mapping, profile)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert all(name in shown.stdout for name in WORK)


def test_validate_judges_a_mapping_too(mapping, recorded, counting, perf):
    if "--perf-kernel" not in perf:
        pytest.skip("perf may not sample the kernel here, which the exact count is with")
    ended = lotus_map("validate", recorded, "--mapping", mapping, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    got = json.loads(ended.stdout, parse_constant=pytest.fail)
    rows = {row["operation"]: row for row in got["operations"] if row["kind"] == "operation"}
    assert rows["Pack"]["mapped"] > 0
    pairs = {row["operation"]: row for row in got["mapping"]}
    for name in ("Pack", "Squeeze"):
        assert 0 < pairs[name]["both"] <= min(pairs[name]["mapped"], pairs[name]["joined"])
        assert pairs[name]["recall"] == pytest.approx(pairs[name]["both"] / pairs[name]["joined"])


def test_apply_refuses_what_it_cannot_read(mapping, tmp_path):
    strange = tmp_path / "strange.csv"
    strange.write_bytes(b"\x00\xff not a profile\n")
    one_line(lotus_map("apply", mapping, strange))
    one_line(lotus_map("apply", strange, strange))
    one_line(lotus_map("apply", mapping, tmp_path / "none.csv"))
    one_line(lotus_map("apply", tmp_path / "none.json", strange))


def test_python_functions_by_py_spy(torch, pair):
    from lotus.recording import py_spy_sidecar

    if shutil.which("py-spy", path=str(Path(LOTUS[0]).parent)) is None:
        pytest.skip("py-spy is not installed")
    for size in ("160", "640"):  # more where py-spy was so late that an operation may have none
        plain, got = pair("counted/counted_work.py", "1", size, options=("--py-spy",))
        assert (got.code, got.out) == (0, plain.out)
        recorder = got.run.manifest["recorders"]["py_spy"]
        if recorder["problem"]:
            assert recorder["problem"].encode() in got.err
            pytest.skip(f"py-spy: {recorder['problem']}")
        assert py_spy_sidecar.PySpy.name in got.run.manifest["recorders"]
        table = got.run.python_functions
        ops = table[table["kind"] == "operation"]
        if ops["samples"].sum() >= 150:
            break
    if ops["samples"].sum() < 30:
        pytest.skip("py-spy was late: the program ran before it looked")
    # Each line lies in the class of its operation.
    for name in WORK:
        mine = ops[ops["operation"] == name]
        assert len(mine)
        assert str(PROGRAMS / "counted/counted_work.py") in set(mine["file"])
    bz2 = ops[ops["file"].str.endswith("/bz2.py")]
    assert set(bz2["operation"]) <= {"Squeeze"}
    assert (table["self_ns"] <= table["total_ns"]).all()
    ended = lotus_map(got.path)
    assert ended.returncode == 0
    assert "Python lines" in ended.stdout
