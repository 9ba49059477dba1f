"""The paper's mapping: built of isolated runs, kept as JSON, laid over profiles."""

import json
import math
import os
import subprocess
import sys
from functools import cache

import pandas as pd
import pytest

from native_map.errors import UnusableError
from native_map.paper.attribution import apply
from native_map.paper.capture_probability import (
    capture_probability,
    executions_needed,
    shortest_captured,
)
from native_map.paper.importers import Profile, loads
from native_map.paper.paper_mapping import Mapping, build, from_json, read, rows_of, to_json, write

MS = 1e6


def isolated(*rows: tuple[str, int, str, str, float]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["operation", "run", "module", "function", "cpu_ns"])
    frame["samples"] = math.nan
    return frame


def runs() -> pd.DataFrame:
    """Decode and Crop, four runs each; both copy memory, Decode three times as much."""
    rows: list[tuple[str, int, str, str, float]] = []
    for run in range(4):
        rows.append(("Decode", run, "libjpeg.so.9", "idct", 60 * MS))
        rows.append(("Decode", run, "libc.so.6", "memmove", 30 * MS))
        rows.append(("Crop", run, "imaging.so", "resample", 10 * MS))
        rows.append(("Crop", run, "libc.so.6", "memmove", 10 * MS))
    rows.append(("Crop", 2, "python3.10", "eval_loop", 4 * MS))
    rows.append(("Crop", 1, "", "[unknown]", 1 * MS))
    rows.append(("Crop", 2, "", "[unknown]", 1 * MS))
    return isolated(*rows)


def profile(*rows: tuple[str, str, float, float, float]) -> Profile:
    """Of (module, function, cycles, retiring, front-end bound)."""
    lines = ["Function;Module;Clockticks;CPU Time;Retiring;Front-End Bound;Bad Speculation"]
    lines += [f"{f};{m};{c:.0f};{c / 1e9:.9f};{r};{fe};0.1" for m, f, c, r, fe in rows]
    return loads("\n".join(lines) + "\n")


WHOLE = (
    ("libjpeg.so.9", "idct", 6000.0, 0.6, 0.1),
    ("imaging.so", "resample", 1000.0, 0.9, 0.0),
    ("libc.so.6", "memmove", 4000.0, 0.1, 0.2),
    ("python3.10", "eval_loop", 500.0, 0.2, 0.5),
    ("other.so", "train_step", 700.0, 0.3, 0.3),
)


def entry(mapping: Mapping, operation: str, function: str) -> dict[str, object]:
    frame = mapping.functions
    chosen = frame[(frame["operation"] == operation) & (frame["function"] == function)]
    assert len(chosen) == 1
    return dict(chosen.iloc[0])


def test_build_gives_each_pair_its_evidence():
    mapping = build(runs())
    idct = entry(mapping, "Decode", "idct")
    assert (idct["runs"], idct["of"], idct["cpu_ns"]) == (4, 4, 240 * MS)
    assert idct["share"] == pytest.approx(2 / 3)
    assert idct["kept"]
    assert math.isnan(idct["samples"])
    assert mapping.functions.groupby("operation")["share"].sum().to_list() == pytest.approx([1, 1])


def test_few_sightings_and_namelessness_are_dropped_with_the_reason():
    mapping = build(runs())
    loop = entry(mapping, "Crop", "eval_loop")
    assert not loop["kept"]
    assert loop["reason"] == "seen in 1 of 4 runs, 2 wanted"
    assert (
        entry(mapping, "Crop", "[unknown]")["reason"] == "the profiler gave no name of the function"
    )
    assert set(mapping.kept["function"]) == {"idct", "memmove", "resample"}
    assert entry(build(runs(), minimum_runs=1), "Crop", "eval_loop")["kept"]


def test_shared_functions_are_weighted_by_their_own_time():
    mapping = build(runs())
    assert entry(mapping, "Decode", "memmove")["weight"] == pytest.approx(0.75)
    assert entry(mapping, "Crop", "memmove")["weight"] == pytest.approx(0.25)
    assert entry(mapping, "Crop", "resample")["weight"] == 1
    assert entry(mapping, "Crop", "eval_loop")["weight"] == 0


def test_more_runs_of_one_operation_do_not_weigh_more():
    frame = runs()
    again = frame[frame["operation"] == "Decode"].assign(run=lambda f: f["run"] + 10)
    mapping = build(pd.concat([frame, again]))
    assert entry(mapping, "Decode", "memmove")["weight"] == pytest.approx(0.75)


def test_apply_without_seconds_goes_by_time_a_run():
    frame = runs()
    again = frame[frame["operation"] == "Decode"].assign(run=lambda f: f["run"] + 10)
    pairs = apply(build(pd.concat([frame, again])), profile(*WHOLE))[1]
    memmove = pairs[pairs["function"] == "memmove"].set_index("operation")["weight"]
    assert memmove.to_dict() == pytest.approx({"Decode": 0.75, "Crop": 0.25})


def test_runs_that_caught_nothing_count():
    mapping = build(runs(), minimum_runs=1, run_counts={"Crop": 10, "Decode": 3})
    assert entry(mapping, "Crop", "eval_loop")["of"] == 10
    assert entry(mapping, "Decode", "idct")["of"] == 4  # four were seen


def test_samples_serve_where_there_is_no_time():
    frame = runs()
    frame["samples"] = frame["cpu_ns"] / MS
    frame["cpu_ns"] = math.nan
    mapping = build(frame)
    assert mapping.measure == "samples"
    assert entry(mapping, "Decode", "memmove")["weight"] == pytest.approx(0.75)
    frame.loc[0, ["samples", "cpu_ns"]] = [math.nan, 1.0]
    with pytest.raises(UnusableError, match="record all in one way"):
        build(frame)


def test_an_operation_without_any_time_is_measured_in_samples():
    frame = runs().assign(samples=1.0)
    frame.loc[frame["operation"] == "Crop", "cpu_ns"] = 0.0
    assert build(frame).measure == "samples"
    frame["samples"] = frame["samples"].where(frame["operation"] == "Crop", 0.0)
    with pytest.raises(UnusableError, match="record all in one way"):
        build(frame)


def test_nothing_to_build_from():
    with pytest.raises(UnusableError, match="caught no function"):
        build(runs().iloc[:0])
    with pytest.raises(UnusableError, match="minimum of 1"):
        build(runs()[lambda f: f["run"] == 0])


def test_rows_of_an_imported_profile():
    rows = rows_of(loads("Function,CPU Time,Module\nf,0.5,m.so\n"), "Decode", 7)
    assert rows.to_dict("records") == [
        {
            "operation": "Decode",
            "run": "7",
            "module": "m.so",
            "function": "f",
            "samples": pytest.approx(math.nan, nan_ok=True),
            "cpu_ns": 5e8,
        }
    ]
    with pytest.raises(UnusableError, match="neither CPU time nor samples"):
        rows_of(loads("Function,Clockticks,Module\nf,5,m.so\n"), "Decode", 7)


def test_json_comes_back_the_same(tmp_path):
    mapping = build(runs(), facts={"machine": "a"})
    path = tmp_path / "mapping.json"
    write(mapping, path)
    back = read(path)
    pd.testing.assert_frame_equal(back.functions, mapping.functions)
    pd.testing.assert_frame_equal(back.operations, mapping.operations)
    assert (back.minimum_runs, back.measure, back.facts) == (2, "cpu_ns", {"machine": "a"})
    document = json.loads(path.read_text())
    loop = next(row for row in document["functions"] if row["function"] == "eval_loop")
    assert loop["reason"] == "seen in 1 of 4 runs, 2 wanted"
    assert loop["samples"] is None


@cache
def whole() -> str:
    return to_json(build(runs()))


def edited(**changes: object) -> str:
    """The mapping's JSON with some fields of its first kept function changed."""
    document = json.loads(whole())
    row = next(row for row in document["functions"] if row["kept"])
    for name, value in changes.items():
        if name in document:
            document[name] = value
        else:
            row[name] = value
    return json.dumps(document)


@pytest.mark.parametrize("table", ["functions", "operations"])
def test_rows_that_stand_twice_are_damage(table):
    document = json.loads(to_json(build(runs())))
    document[table].append(document[table][-1])
    with pytest.raises(UnusableError, match="stands there twice"):
        from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"format": "lotus-mapping", "version": 1' + "0" * 5000 + "}", "too many digits"),
        ('{"format": "lotus-mapping", "format": "x"}', "twice"),
        ('{"format": "other"}', '"format" is not "lotus-mapping"'),
        ('{"format": "lotus-mapping", "version": 2}', "its version is 2, this lotus reads 1"),
        (edited(minimum_runs=0), "minimum_runs: expected `int` >= 1, got 0"),
        (edited(minimum_runs=True), "minimum_runs"),
        (edited(minimum_runs=5), "fewer runs than minimum_runs"),
        (edited(measure="joules"), "measure"),
        (edited(facts={"a": 1}), r"facts\[...\]: expected `str`, got `int`"),
        (edited(operations=[]), "operations"),
        (edited(functions="all"), "functions"),
        (edited(functions=[3]), r"functions\[0\]: expected `object`, got `int`"),
        (edited(surplus=1), "unknown field `surplus`"),
        (edited(cpu_ns=-1), r"functions\[1\].cpu_ns: expected `float` >= 0.0, got -1"),
        (edited(cpu_ns=None), "cpu_ns"),
        (edited(cpu_ns=math.inf), "not JSON"),
        (edited(cpu_ns=1).replace('"cpu_ns": 1,', '"cpu_ns": 1e999,'), "cpu_ns"),
        (edited(cpu_ns=True), "cpu_ns"),
        (edited(runs=5), r"functions\[1\]: it was seen in more runs"),
        (edited(runs=3.5), "runs"),
        (edited(of=9), r"functions\[1\]: operations tell a different number of runs"),
        (
            edited(operation="Elsewhere"),
            r"functions\[1\]: operations tell a different number of runs",
        ),
        (edited(weight=0.5), "its weight does not follow"),
        (edited(share=1.5), r"share: expected `float` <= 1.000000001, got 1.5"),
        (edited(kept="yes"), "kept"),
        (edited(function="\x1b[31m"), "without control characters, got .*x1b"),
        (edited(function="\ud800"), "function"),
        (edited(module="m" * 30_000), "module"),
    ],
)
def test_damaged_json_gets_one_line(text, match):
    with pytest.raises(UnusableError, match=match) as caught:
        from_json(text, "map.json")
    assert "\n" not in str(caught.value)
    assert "map.json" in str(caught.value)
    assert "lotus map build" in str(caught.value)


def test_json_without_end_is_refused(tmp_path):
    endless = tmp_path / "mapping.json"
    with endless.open("wb") as file:
        file.truncate(1 << 34)
    with pytest.raises(UnusableError, match="larger than 16 MiB"):
        read(endless)


def test_apply_splits_and_drops_nothing():
    whole = profile(*WHOLE)
    summed, pairs, left = apply(build(runs()), whole)
    cycles = summed.set_index("operation")["cycles"]
    assert cycles["Decode"] == pytest.approx(6000 + 0.75 * 4000)
    assert cycles["Crop"] == pytest.approx(1000 + 0.25 * 4000)
    reasons = left.set_index("function")["reason"]
    assert reasons["eval_loop"] == "seen in too few isolated runs"
    assert reasons["train_step"] == "in no operation's isolated runs"
    for name in whole.additive:
        assert pairs[name].sum() + left[name].sum() == pytest.approx(whole.totals[name])
        assert summed[name].sum() == pytest.approx(pairs[name].sum())
    assert (pairs["match"] == "module").all()
    assert (pairs["evidence"] == "strong").all()


def test_each_operation_has_its_own_shares():
    summed = apply(build(runs()), profile(*WHOLE))[0].set_index("operation")
    decode = (6000 * 0.6 + 3000 * 0.1) / 9000
    crop = (1000 * 0.9 + 1000 * 0.1) / 2000
    assert summed.loc["Decode", "retiring"] == pytest.approx(decode)
    assert summed.loc["Crop", "retiring"] == pytest.approx(crop)
    four = ["retiring", "frontend_bound", "bad_speculation", "backend_bound"]
    assert summed[four].sum(axis=1).to_list() == pytest.approx([1, 1])
    assert summed.loc["Crop", "shared"] == pytest.approx(0.5)
    assert summed.loc["Decode", "weak"] == 0


def test_seconds_of_the_run_scale_the_isolated_times():
    # Crop ran nine times as long in the profiled run as Decode: half of it is memmove.
    summed, pairs, _ = apply(build(runs()), profile(*WHOLE), {"Decode": 1.0, "Crop": 9.0})
    memmove = pairs[pairs["function"] == "memmove"].set_index("operation")["weight"]
    # The dropped functions' time is the operation's too: memmove is 40 of Crop's 86 ms.
    decode, crop = 1 / 3 * 1, 40 / 86 * 9
    assert memmove["Decode"] == pytest.approx(decode / (decode + crop))
    assert memmove["Crop"] == pytest.approx(crop / (decode + crop))
    assert summed["cycles"].sum() == pytest.approx(11_000)
    with pytest.raises(UnusableError, match="no seconds are given for Crop"):
        apply(build(runs()), profile(*WHOLE), {"Decode": 1.0})


def test_a_profile_without_modules_matches_by_name_and_is_marked_weak():
    bare = profile(*[("[Unknown]", f, c, r, fe) for _, f, c, r, fe in WHOLE])
    summed, pairs, _ = apply(build(runs()), bare)
    assert (pairs["match"] == "function").all()
    assert (pairs["evidence"] == "no module").all()
    assert (summed["no_module"] == 1).all()
    assert (summed["weak"] == 1).all()


def test_another_module_of_the_same_function_is_a_leftover():
    summed, _, left = apply(build(runs()), profile(("libz.so.1", "idct", 10.0, 0.5, 0.1)))
    assert left["reason"].to_list() == ["the mapping has it in another module"]
    assert summed["pairs"].to_list() == [0, 0]
    assert summed["cycles"].isna().all()


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("libc.so.6", "libc-2.31.so", True),
        ("libjpeg.so.9", "libjpeg.so.9.5.0", True),
        ("libgomp.so.1", "libgomp-a34b3233.so.1", True),
        ("python3.10", "libpython3.11.so.1.0", True),
        (
            "_imaging.cpython-310-x86_64-linux-gnu.so",
            "_imaging.cpython-39-x86_64-linux-gnu.so",
            True,
        ),
        ("libtorch_cpu.so", "libtorch_python.so", False),
        ("libc.so.6", "libcrypto.so.3", False),
    ],
)
def test_versions_of_a_library_are_the_same_library(ours, theirs, same):
    mapping = build(isolated(("Op", 0, ours, "f", MS)), minimum_runs=1)
    pairs = apply(mapping, profile((theirs, "f", 10.0, 0.5, 0.1)))[1]
    assert pairs["match"].to_list() == (["library"] if same else [])


def test_addresses_match_within_the_same_file_only():
    mapping = build(isolated(("Op", 0, "libc.so.6", "func@0x1e7f80", MS)), minimum_runs=1)
    for module, matched in (("libc.so.6", 1), ("libc-2.31.so", 0), ("[Unknown]", 0)):
        _, pairs, left = apply(mapping, profile((module, "func@0x1e7f80", 10.0, 0.5, 0.1)))
        assert len(pairs) == matched
        assert len(left) == 1 - matched
    assert left["reason"].to_list() == ["an address without a module"]


def test_few_runs_are_marked():
    frame = isolated(*[("Op", run, "m", "f", MS) for run in range(4)], ("Op", 0, "m", "rare", MS))
    mapping = build(frame, minimum_runs=1)
    rows = (("m", "f", 30.0, 0.5, 0.1), ("m", "rare", 10.0, 0.5, 0.1))
    summed, pairs, _ = apply(mapping, profile(*rows))
    evidence = pairs.set_index("function")["evidence"].to_dict()
    assert evidence == {"f": "strong", "rare": "few runs"}
    assert summed["few_runs"].to_list() == [0.25]


def test_a_single_run_is_weak_evidence():
    mapping = build(isolated(("Op", 0, "m", "f", MS)), minimum_runs=1)
    pairs = apply(mapping, profile(("m", "f", 30.0, 0.5, 0.1)))[1]
    assert pairs["evidence"].to_list() == ["few runs"]


def test_what_the_isolated_run_did_otherwise_shows_as_low_coverage():
    summed = apply(build(runs()), profile(("libjpeg.so.9", "idct", 10.0, 0.5, 0.1)))[0]
    assert summed.set_index("operation")["covered"].to_dict() == pytest.approx(
        {"Decode": 2 / 3, "Crop": 0}
    )


def test_spellings_of_one_template_are_one_function():
    mapping = build(isolated(("Op", 0, "m", "run<int, float>(int, float)", MS)), minimum_runs=1)
    _, pairs, _ = apply(mapping, profile(("m", "run<int,float>(intfloat)", 10.0, 0.5, 0.1)))
    assert len(pairs) == 1


def test_a_total_beyond_the_listed_functions_is_a_leftover():
    text = '"AMD uProf"\n\nFUNCTION,"CPU_TIME",Module\n"idct",70,"libjpeg.so.9"\n\n'
    whole = loads(text + 'PROCESS,"CPU_TIME"\n"p",100\n')
    _, pairs, left = apply(build(runs()), whole)
    assert pairs["samples"].sum() == 70
    assert left["samples"].to_list() == [30]
    assert "own total" in left["reason"].iloc[0]


def test_functions_without_shares_do_not_dilute_them():
    text = "Function;Module;Clockticks;Retiring;Front-End Bound\n"
    text += "idct;libjpeg.so.9;100;0.5;0.1\nmemmove;libc.so.6;100;;\n"
    summed = apply(build(runs()), loads(text))[0].set_index("operation")
    assert summed.loc["Decode", "retiring"] == pytest.approx(0.5)
    assert math.isnan(summed.loc["Crop", "retiring"])


def test_capture_probability():
    assert capture_probability(1e-3, 10e-3, 1) == pytest.approx(0.1)
    assert capture_probability(1e-3, 10e-3, 20) == pytest.approx(1 - 0.9**20)
    assert capture_probability(1.0, 10e-3, 1) == 1
    assert capture_probability(1.0, 10e-3, 0) == 0
    assert capture_probability(1e-9, 10e-3, 1) == pytest.approx(1e-7)


def test_executions_needed_are_the_fewest():
    for function_s in (1e-6, 3e-5, 1e-3, 9e-3, 1.0):
        for wanted in (0.0, 0.5, 0.9, 0.95, 0.999):
            count = executions_needed(function_s, 10e-3, wanted)
            assert capture_probability(function_s, 10e-3, count) >= wanted
            if count:
                assert capture_probability(function_s, 10e-3, count - 1) < wanted
    # 1 - (1 - 1/10)^29 = 0.953
    assert executions_needed(1e-3, 10e-3, 0.95) == 29


def test_shortest_captured_is_the_inverse():
    shortest = shortest_captured(10e-3, 100, 0.95)
    assert capture_probability(shortest, 10e-3, 100) == pytest.approx(0.95)


def test_capture_refuses_what_has_no_answer():
    for call in (
        lambda: capture_probability(0, 1e-2, 1),
        lambda: capture_probability(1e-3, math.nan, 1),
        lambda: capture_probability(1e-3, 1e-2, -1),
        lambda: executions_needed(1e-3, 1e-2, 1.0),
        lambda: executions_needed(1e-30, 1e-2),
        lambda: shortest_captured(1e-2, 0),
    ):
        with pytest.raises(ValueError, match=r"\w+"):
            call()


def test_a_pipe_is_refused_without_waiting(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = f"from native_map.paper.paper_mapping import read; read({str(pipe)!r})"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert f"{pipe}: cannot be read (not a plain file); type: lotus map build" in ended.stderr
    with pytest.raises(UnusableError, match="Is a directory"):
        read(tmp_path)


def test_no_share_is_below_zero_and_means_are_of_the_shares_as_they_are():
    rows = (("libjpeg.so.9", "idct", 100.0, 0.5, -0.006), ("libc.so.6", "memmove", 90.0, 0.5, -0.2))
    whole = profile(*rows)
    assert whole.functions["frontend_bound"].tolist() == [-0.006, -0.2]
    summed, pairs, left = apply(build(runs()), whole)
    for table in (summed, pairs, left):
        assert not (table["frontend_bound"] < 0).any()
    shown = pairs.set_index("function")["frontend_bound"]
    assert shown["idct"] == 0
    assert shown["memmove"].isna().all()
    # The mean of -0.6 % and -20 % is not that of 0 and nothing.
    assert math.isnan(summed.set_index("operation").loc["Decode", "frontend_bound"])
