"""Flame graphs and profiles: what they weigh, and whether others can read them."""

import gzip
import json

import pandas as pd
import pytest

from lotus.common.errors import LotusError
from lotus.common.text.formatting import operation_name
from lotus.export import formats
from lotus.export.export_request import ExportRequest
from lotus.export.profiles import flame_graphs, pprof
from lotus.export.profiles.profile_stacks import COUNT, NS, StackRow, Weight
from lotus.reading.run import load
from lotus.reading.tables import table_pieces
from tests.logs import MS, START_NS, RunBuilder, Sample
from tests.simulation import simulate

LOADER = "loader 0 (train.py:31)"


def quiet(done, whole):
    pass


def folded(run, event=None, notes=None):
    text = b"".join(
        flame_graphs.pieces(
            run, ExportRequest("folded", weight=event), [] if notes is None else notes, quiet
        )
    ).decode()
    lines = [line.rpartition(" ") for line in text.splitlines()]
    return {tuple(stack.split(";")): int(value) for stack, _, value in lines}


def counted_run(path, events=("instructions", "cycles")):
    """One batch of two samples, whose operations were counted: 100 and 10 each instructions, of
    which 30 of the first in a nested one; collate 7, all of the fetch 500."""
    builder = RunBuilder(path)
    main = builder.process(100)
    main.loader(0, num_workers=0)
    main.iterator(0, 0, START_NS, START_NS + MS, [])
    main.operations("Outer", "Inner", "Last")
    main.counters(dict.fromkeys(events, 0.0))
    at = START_NS + 2 * MS

    def reading(value):
        return (len(events), value, value, *[value * (n + 1) for n in range(len(events))])

    # Edges by operation, in order of completion: Inner lies in Outer.
    ops = [("Inner", 10, 5), ("Outer", 50, 0), ("Last", 20, 60)]
    values = [0, 10, 20, 50, 110, 120, 130, 400, 407, 500]
    main.counts(
        at,
        [reading(value) for value in values],
        edges=[(2, 3), (1, 4), (5, 6)],
        collate=(7, 8),
    )
    main.batch(0, start_ns=at, samples=[Sample(0, 100, ops)], collate_ns=30, loader=0)
    main.wait(0, 0, 0, start_ns=at - 100, end_ns=at + 1000)
    return load(builder.end())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rows", [5, 1 << 18])
def test_time_is_that_of_the_tables_each_bit_once(tmp_path, monkeypatch, workers, rows):
    monkeypatch.setattr(table_pieces, "ROWS", rows)
    run = load(simulate(tmp_path / "run", workers=workers))
    stacks = folded(run)
    loader = LOADER
    ops, batches = run.ops, run.batches
    fetch = (loader, "wait", "fetch") if not workers else (loader, "fetch")
    for name in ops["operation"].unique():
        mine = ops[(ops["operation"] == name) & ~ops["nested"]]["duration_ns"].sum()
        assert stacks[(*fetch, operation_name(name))] == mine
    assert stacks[(*fetch, "collate")] == batches["collate_ns"].sum()
    # The data set's own code is what is left of the fetch.
    assert (
        sum(v for k, v in stacks.items() if k[: len(fetch)] == fetch) == batches["fetch_ns"].sum()
    )
    assert sum(v for k, v in stacks.items() if "wait" in k) == run.waits["wait_ns"].sum()
    assert stacks[(loader, "step")] == run.waits["step_ns"].sum()


def test_exact_counts_each_bit_once(tmp_path):
    run = counted_run(tmp_path / "run")
    stacks = folded(run, "instructions")
    fetch = (LOADER, "fetch")
    assert stacks == {
        fetch: 500 - 100 - 10 - 7,
        (*fetch, "Outer"): 70,
        (*fetch, "Outer", "Inner"): 30,
        (*fetch, "Last"): 10,
        (*fetch, "collate"): 7,
    }
    assert sum(folded(run, "cycles").values()) == 2 * sum(stacks.values())


def test_an_event_that_the_run_does_not_have(tmp_path):
    run = counted_run(tmp_path / "run")
    with pytest.raises(LotusError, match=r"no cache_misses.*time, instructions, cycles"):
        folded(run, "cache_misses")


DECODER = operation_name("Loader")
FUNCTIONS = pd.DataFrame(
    [
        ("operation", "Loader", "", "cycles:u", "libjpeg.so", "decode;x", 5, 0.5, 900.4, 1, 2),
        ("operation", "Loader", "", "cycles:u", "libc.so", "memcpy", 5, 0.5, 99.0, 1, 2),
        ("fetch", "", "", "cycles:u", "python3", "eval\n", 1, 0.1, 10.0, 1, 2),
        ("operation", "", "Loader", "cycles:u", "libgomp.so", "spin", 1, 0.1, 4.0, 1, 2),
        ("operation", "Loader", "", "task-clock:u", "libc.so", "memcpy", 5, 0.5, 7.0, 1, 2),
    ],
    columns="kind operation helper_of event library function samples share count low high".split(),
)


@pytest.fixture
def sampled(tmp_path):
    run = counted_run(tmp_path / "run")
    run.__dict__["functions"] = FUNCTIONS
    return run


def test_samples_come_first_where_there_are_any(sampled):
    notes = []
    stacks = folded(sampled, notes=notes)
    assert stacks == {
        (DECODER, "libjpeg.so", "decode:x"): 900,
        (DECODER, "libc.so", "memcpy"): 99,
        ("fetch", "python3", "eval\\n"): 10,
        (f"threads of {DECODER}", "libgomp.so", "spin"): 4,
    }
    assert notes == [
        "weighted by cycles:u; --weight takes also time, task-clock:u, instructions, cycles"
    ]
    assert folded(sampled, "task-clock:u") == {(DECODER, "libc.so", "memcpy"): 7}


def test_speedscope_has_a_profile_for_each_event_and_process(sampled):
    document = json.loads(
        b"".join(flame_graphs.pieces(sampled, ExportRequest("speedscope"), [], quiet))
    )
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames, profiles = document["shared"]["frames"], document["profiles"]
    assert [(profile["name"], profile["unit"]) for profile in profiles] == [
        ("cycles:u", "none"),
        ("task-clock:u", "nanoseconds"),
        ("time: rank 0, main process (pid 100)", "nanoseconds"),
        ("instructions: rank 0, main process (pid 100)", "none"),
        ("cycles: rank 0, main process (pid 100)", "none"),
    ]
    for profile in profiles:
        # What the schema asks of a sampled profile.
        assert profile["type"] == "sampled"
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert profile["endValue"] - profile["startValue"] == pytest.approx(sum(profile["weights"]))
        assert all(0 <= at < len(frames) for stack in profile["samples"] for at in stack)
    stacks = [[frames[at]["name"] for at in stack] for stack in profiles[0]["samples"]]
    assert [DECODER, "libjpeg.so", "decode;x"] in stacks
    assert {frame["file"] for frame in frames if frame["name"] == "spin"} == {"libgomp.so"}
    only = json.loads(
        b"".join(
            flame_graphs.pieces(sampled, ExportRequest("speedscope", weight="cycles"), [], quiet)
        )
    )
    assert [profile["name"].split(":")[0] for profile in only["profiles"]] == ["cycles"]


def test_ranks_are_apart_in_folded_stacks():
    def row(rank, value):
        return StackRow(rank, f"worker 0 (pid {rank})", 0, ("a",), ("",), "", value)

    text = flame_graphs.folded(Weight("x", COUNT, [row(0, 1.0), row(1, 2.0), row(1, 3.0)]))
    assert text == "rank 0;a 1\nrank 1;a 5\n"
    assert flame_graphs.folded(Weight("x", NS, [row(3, 1.4)])) == "a 1\n"


def profile_message():
    """pprof's Profile as protobuf has it, from proto/profile.proto."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    int64, uint64, string, boolean, message = 3, 4, 9, 8, 11
    described = {
        "ValueType": [("type", 1, int64), ("unit", 2, int64)],
        "Label": [("key", 1, int64), ("str", 2, int64), ("num", 3, int64)],
        "Sample": [("location_id", 1, uint64, "*"), ("value", 2, int64, "*"),
                   ("label", 3, message, "*Label")],
        "Line": [("function_id", 1, uint64), ("line", 2, int64)],
        "Location": [("id", 1, uint64), ("mapping_id", 2, uint64), ("address", 3, uint64),
                     ("line", 4, message, "*Line"), ("is_folded", 5, boolean)],
        "Function": [("id", 1, uint64), ("name", 2, int64), ("system_name", 3, int64),
                     ("filename", 4, int64)],
        "Profile": [("sample_type", 1, message, "*ValueType"), ("sample", 2, message, "*Sample"),
                    ("location", 4, message, "*Location"), ("function", 5, message, "*Function"),
                    ("string_table", 6, string, "*"), ("time_nanos", 9, int64),
                    ("duration_nanos", 10, int64), ("comment", 13, int64, "*"),
                    ("default_sample_type", 14, int64)],
    }  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="p", syntax="proto3")
    for name, fields in described.items():
        message_type = file.message_type.add(name=name)
        for field, number, kind, *more in fields:
            described_type = more[0] if more else ""
            added = message_type.field.add(name=field, number=number, type=kind)
            added.label = 3 if described_type.startswith("*") else 1
            if described_type[1:]:
                added.type_name = f".p.{described_type[1:]}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Profile"))


def test_pprof_has_every_event_as_a_sample_type(sampled):
    pytest.importorskip("google.protobuf")
    profile = profile_message()()
    profile.ParseFromString(
        gzip.decompress(b"".join(pprof.pieces(sampled, ExportRequest("pprof"), [], quiet)))
    )
    texts = profile.string_table
    assert texts[0] == ""
    types = [(texts[kind.type], texts[kind.unit]) for kind in profile.sample_type]
    assert types == [
        ("cycles:u", "count"),
        ("task-clock:u", "nanoseconds"),
        ("time", "nanoseconds"),
        ("instructions", "count"),
        ("cycles", "count"),
    ]
    assert texts[profile.default_sample_type] == "cycles:u"
    functions = {function.id: function for function in profile.function}
    places = {location.id: functions[location.line[0].function_id] for location in profile.location}
    sums = [0] * len(types)
    stacks = {}
    for sample in profile.sample:
        assert len(sample.value) == len(types)
        sums = [total + value for total, value in zip(sums, sample.value, strict=True)]
        names = tuple(texts[places[at].name] for at in sample.location_id)
        labels = {texts[label.key]: texts[label.str] or label.num for label in sample.label}
        before = stacks.get(names, ([0] * len(types), labels))[0]
        stacks[names] = ([a + b for a, b in zip(before, sample.value, strict=True)], labels)
    assert sums[0] == 1013
    assert sums[1] == 7
    assert sums[3] == sum(folded(sampled, "instructions").values())
    # The innermost frame stands first.
    values, labels = stacks[("Inner", "Outer", "fetch", LOADER)]
    assert values == [0, 0, 0, 30, 60]
    assert labels["operation"] == "Inner"
    assert labels["process"] == "main process (pid 100)"
    assert labels["rank"] == 0
    timed, _ = stacks[("Inner", "Outer", "fetch", "wait", LOADER)]
    assert timed == [0, 0, 10, 0, 0]
    file = places[next(s for s in profile.sample if s.value[1]).location_id[0]].filename
    assert texts[file] == "libc.so"
    assert profile.time_nanos == 1_700_000_000_000_000_000


def test_a_run_without_a_loader_has_nothing_to_weigh(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    builder.process(100)
    run = load(builder.end())
    for format in ("folded", "speedscope", "pprof"):
        output = tmp_path / format
        with pytest.raises(LotusError, match="no loader was iterated"):
            formats.export(run, ExportRequest(format, output), quiet)
        assert not output.exists()


def test_samples_that_cannot_be_read_leave_the_time(tmp_path):
    run = load(simulate(tmp_path / "run"))
    (tmp_path / "run" / "perf.data").write_bytes(b"PERFILE2 but not really")
    notes = []
    assert (LOADER, "step") in folded(run, notes=notes)
    assert any("the samples are left out" in note for note in notes)
