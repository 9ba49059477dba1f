"""Files that are made to cost as much as can be: each is answered or refused, within a GiB."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from native_map.errors import UnusableError
from native_map.events import perf_list
from native_map.paper.importers import load
from native_map.recording import perf_data, perf_tasks, py_spy
from native_map.recording.perf_unpack import library
from native_map.symbols import elf, named_ranges
from native_map.symbols.elf_image import Image
from native_map.symbols.symbolizer import Symbols
from tests.unit import perf_files as made
from tests.unit.bounded import within
from tools.fuzz import attacks
from tools.fuzz.attacks import put

MEMORY = 1 << 30  # bytes of address space beside what the process of the tests has
needs_zstd = pytest.mark.skipif(not library(), reason="libzstd is not installed")


def bounded(work: Callable[[], object]) -> object:
    return within(work, MEMORY).result


def read_profile(path: Path, **kwargs: object) -> tuple[int, int, str]:
    """Samples, mappings, and all that was said of what was not read."""
    recording = perf_data.read(path, perf="no-such-perf", **kwargs)  # type: ignore[arg-type]
    symbols = Symbols(perf_maps="/nonexistent")
    seen = 0
    for chunk in recording.chunks():
        symbols.resolve(recording.mappings, chunk, recording.forks, recording.comms)
        seen += len(chunk)
    return seen, len(recording.mappings), "\n".join([*recording.damage, *symbols.notes])


def read_perf(path: Path, data: bytes) -> tuple[int, int, str]:
    put(path, data)
    result = bounded(lambda: read_profile(path))
    assert isinstance(result, tuple)
    return result


# perf.data


@needs_zstd
def test_records_that_repeat_are_unpacked_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "f"
    samples, _, notes = read_perf(path, attacks.zstd_that_repeats(52_000))
    size = path.stat().st_size
    most = 16 << 20
    assert most // 64 <= samples <= most // 48
    assert "the compressed records unpack to more than 16 MiB: " in notes
    left = int(notes.partition("16 MiB: ")[2].split(" bytes")[0])
    assert 0 < left < size


@needs_zstd
def test_what_is_packed_as_usual_is_read_whole(tmp_path: Path) -> None:
    records = b"".join(made.sample(n, n * 4099 % (1 << 40)) for n in range(30_000))
    pieces = [records[at : at + 100_003] for at in range(0, len(records), 100_003)]
    packed = [attacks.packed(piece) for piece in pieces]
    plain = made.record(82, b"", 0)  # between them, where a record is cut
    parts = []
    for piece in packed:
        for at in range(0, len(piece), 60_000):
            parts += [made.record(81, piece[at : at + 60_000], 0), plain]
    put(tmp_path / "f", attacks.perf(b"".join(parts), attacks.COMPRESSED))
    recording = perf_data.read(tmp_path / "f", perf="no-such-perf")
    assert recording.samples["time_ns"].tolist() == list(range(30_000))
    assert (recording.damage, recording.reader) == ([], "direct")


@needs_zstd
@pytest.mark.parametrize("at", [0, 9, 40])
def test_a_damaged_compressed_record_is_a_loss_with_its_size(tmp_path: Path, at: int) -> None:
    frame = bytearray(attacks.packed(made.sample(10) * 1000))
    good = made.record(81, bytes(frame), 0)
    frame[at % len(frame)] ^= 0x5A
    bad = made.record(81, bytes(frame), 0)
    put(tmp_path / "f", attacks.perf(good + bad + good, attacks.COMPRESSED))
    recording = perf_data.read(tmp_path / "f", perf="no-such-perf")
    assert 1000 <= len(recording) < 3000
    assert recording.unread == len(bad) + len(good)
    assert f"{recording.unread} bytes" in recording.damage[0]
    put(
        tmp_path / "f",
        attacks.perf(good + made.record(81, bytes(frame[:20]), 0), attacks.COMPRESSED),
    )
    recording = perf_data.read(tmp_path / "f", perf="no-such-perf")
    assert (len(recording), recording.unread) == (1000, 28)
    assert "28 bytes" in recording.damage[0]


@needs_zstd
def test_packed_processes_are_counted_before_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_tasks, "MOST_RECORDS", 5000)
    _, mappings, notes = read_perf(tmp_path / "f", attacks.zstd_of_processes(2000))
    assert mappings == 5000
    assert "records of processes, mappings and losses are beyond the first 5,000" in notes


@pytest.mark.parametrize("trusted", [True, False])
def test_a_file_of_others_never_reaches_perf(tmp_path: Path, trusted: bool) -> None:
    perf = tmp_path / "perf"
    perf.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    perf.chmod(0o755)
    (tmp_path / "f").write_bytes(attacks.pipe_of_events(1000))
    with pytest.raises(UnusableError) if not trusted else _nothing():
        perf_data.read(tmp_path / "f", str(perf), trusted=trusted)
    assert (tmp_path / "asked").exists() == trusted


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_perf_is_stopped_where_it_takes_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from native_map.programs import ProgramLimits
    from native_map.recording import perf_script

    perf = tmp_path / "perf"
    line = " 5/5 U 1.000000001: 1 cycles: 10"
    perf.write_text(f"#!{sys.executable} -IS\nprint('{line}')\nwhile True: print('{line}')\n")
    perf.chmod(0o755)
    (tmp_path / "f").write_bytes(attacks.pipe_of_events(1000))
    monkeypatch.setattr(perf_script, "limits_for", lambda size: ProgramLimits(output=1 << 20))
    recording = perf_data.read(tmp_path / "f", str(perf))
    assert len(recording) == (1 << 20) // (len(line) + 1)
    assert "perf script stopped: it wrote more than 1 MiB" in recording.damage[0]
    monkeypatch.setattr(perf_script, "limits_for", lambda size: ProgramLimits(cpu_s=1))
    perf.write_text(f"#!{sys.executable} -IS\nprint('{line}', flush=True)\nwhile True: pass\n")
    recording = perf_data.read(tmp_path / "f", str(perf))
    assert (len(recording), recording.damage) == (
        1,
        ["perf script stopped: it took more than 1 s of CPU time"],
    )


def test_times_and_counts_that_perf_prints_as_unsigned_are_read(tmp_path: Path) -> None:
    perf = tmp_path / "perf"
    most = (1 << 64) - 1
    line = f" 5/5 U {most // 10**9}.{most % 10**9:09d}: {most} cycles: {most:x}"
    lost = f" 5/5 U 1.000000000: PERF_RECORD_LOST lost {most}"
    perf.write_text(f"#!/bin/sh\necho '{line}'\necho '{lost}'\n")
    perf.chmod(0o755)
    (tmp_path / "f").write_bytes(attacks.pipe_of_events(1000))
    recording = perf_data.read(tmp_path / "f", str(perf))
    columns = (recording.samples[name].tolist() for name in ("time_ns", "ip", "period"))
    assert list(columns) == [[-1], [most], [most]]
    assert recording.lost["count"].tolist() == [-1]


def test_what_perf_may_take_grows_with_the_file() -> None:
    from native_map.recording.perf_script import limits_for

    small, large = limits_for(52_000), limits_for(1 << 30)
    assert small.memory < 1 << 30
    assert small.cpu_s <= 15
    assert large.memory > 1 << 30
    assert large.cpu_s > 1000


def test_mappings_over_each_other_are_bounded(tmp_path: Path) -> None:
    samples, mappings, notes = read_perf(
        tmp_path / "f", attacks.mappings_over_each_other(2_000_000)
    )
    assert (samples, mappings) == (1_000_000 // 48, 1_000_000 // 80)
    assert "mappings that overlap others where samples are were left out: too many" in notes
    assert len(notes.splitlines()) < 300


def test_a_process_for_every_sample(tmp_path: Path) -> None:
    samples, mappings, notes = read_perf(tmp_path / "f", attacks.processes_of_one_sample(2_000_000))
    assert samples == mappings == 2_000_000 // 130
    assert "samples without names: they are in too many files to open them all" in notes
    samples, _, notes = read_perf(tmp_path / "f", attacks.samples_nowhere(500_000))
    assert samples == 500_000 // 48
    assert "6,320 samples in generated code of too many processes" in notes


def test_what_forks_inherit_is_bounded_by_the_bytes_of_its_paths(tmp_path: Path) -> None:
    _, mappings, notes = read_perf(tmp_path / "f", attacks.forks_that_inherit(3_000_000))
    assert 365 < mappings < (64 << 20) // 4000
    assert "too many mappings: " in notes


def test_facts_without_end_are_losses_with_their_size(tmp_path: Path) -> None:
    put(tmp_path / "f", attacks.facts(48_000_000))

    def read() -> tuple[list[str], int]:
        recording = perf_data.read(tmp_path / "f")
        return recording.damage, sum(len(str(fact)) for fact in recording.facts.values())

    damage, size = bounded(read)  # type: ignore[misc]
    assert "the header's hostname (8,000,004 bytes, more than 4 MiB) was not read" in damage
    assert size < 1 << 20


def test_events_that_share_their_ids(tmp_path: Path) -> None:
    put(tmp_path / "f", attacks.ids(20_000_000))

    def read() -> str:
        with pytest.raises(UnusableError) as error:
            perf_data.read(tmp_path / "f")
        return str(error.value)

    assert "more ids than events can have" in str(bounded(read))


# ELF files


def named(path: Path, data: bytes, addresses: int = 100_000) -> tuple[list[str], list[str]]:
    """Names at addresses 16 bytes apart, and what was not read."""
    put(path, data)

    def work() -> tuple[list[str], list[str]]:
        file = elf.Elf.open(str(path))
        assert isinstance(file.build_id, str)
        mini = file.mini_debug()
        image = Image(file, [mini] if mini else [])
        _, names = image.resolve(np.arange(addresses, dtype=np.uint64) * 16 + 0x1000)
        image.aliases(0x1000)
        return names[:1000], image.refused

    return bounded(work)  # type: ignore[return-value]


def test_tables_of_symbols_are_counted_before_they_are_built(tmp_path: Path) -> None:
    names, refused = named(tmp_path / "f", attacks.one_table_many_headers(3_600_000))
    assert names == ["[unknown]", "f"]
    assert refused[0].startswith("20,000 tables of symbols (")
    assert refused[0].endswith(" bytes) overlap others or are too many: not read")
    names, refused = named(tmp_path / "f", attacks.tables_over_each_other(4_000_000))
    assert names == ["[unknown]", "f"]
    assert refused[0].startswith("60 tables of symbols (")


def test_names_without_end_are_read_up_to_a_bound(tmp_path: Path) -> None:
    names, refused = named(tmp_path / "f", attacks.names_without_end(4_000_000))
    assert sum(map(len, names)) < 64 << 20
    assert "names beyond 32 MiB were not read" in refused[-1]


@pytest.mark.parametrize("make", [attacks.notes, attacks.nested, attacks.frames])
def test_headers_and_entries_that_repeat(tmp_path: Path, make: attacks.Maker) -> None:
    names, _ = named(tmp_path / "f", make(3_000_000))
    assert names


def test_entries_beyond_the_most_are_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from native_map.symbols import eh_frame

    monkeypatch.setattr(eh_frame, "MOST_WALKED", 1000)
    _, refused = named(tmp_path / "f", attacks.frames(48_000))
    assert refused == [f"{24 * 1001:,} bytes of .eh_frame were not read"]


def test_debug_data_that_unpacks_to_more_than_a_bound_is_refused(tmp_path: Path) -> None:
    _, refused = named(tmp_path / "f", attacks.debug_bomb(1_500_000))
    assert ".gnu_debugdata unpack to more than 64 MiB and were not read" in refused[0]


def test_a_file_of_holes_is_not_summed_up(tmp_path: Path) -> None:
    put(tmp_path / "f", attacks.with_hole(attacks.nested(1000), 500, 1 << 40))

    def work() -> int:
        return elf.Elf.open(str(tmp_path / "f")).crc()

    assert within(work, 2 << 40).result == -1


# Maps of generated code


def samples_at(address: int, pid: int) -> tuple[object, object]:
    import pandas as pd

    mappings = pd.DataFrame(
        {"pid": [pid], "start": [0], "end": [1 << 40], "path": ["//anon"], "executable": [True]}
    )
    samples = pd.DataFrame({"pid": [pid], "ip": [address], "time_ns": [1]})
    return mappings, samples


def name_in(symbols: Symbols, address: int = 0x10, pid: int = 7) -> str:
    mappings, samples = samples_at(address, pid)
    return str(symbols.resolve(mappings, samples)["function"].iloc[0])  # type: ignore[arg-type]


def test_only_maps_of_this_user_and_root_are_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "perf-7.map"
    path.write_bytes(b"10 10 f\n")
    assert name_in(Symbols(perf_maps=str(tmp_path))) == "f"
    assert name_in(Symbols(perf_maps=str(tmp_path), trusted=False)) == "[unknown]"
    real = os.fstat

    def others(handle: int) -> os.stat_result:
        values = list(real(handle))
        values[4] = 12345
        return os.stat_result(values)

    monkeypatch.setattr(named_ranges.os, "fstat", others)
    symbols = Symbols(perf_maps=str(tmp_path))
    assert name_in(symbols) == "[unknown]"
    assert f"{path} belongs to another user (8 bytes) and was not read" in symbols.notes
    monkeypatch.undo()
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    symbols = Symbols(perf_maps=str(tmp_path))
    assert name_in(symbols) == "[unknown]"
    assert f"{path} is a link and was not read" in symbols.notes


def test_all_maps_together_are_bounded(tmp_path: Path) -> None:
    for pid in (7, 8, 9):
        put(tmp_path / f"perf-{pid}.map", attacks.short_lines(6_000_000))

    def work() -> tuple[list[str], list[str]]:
        symbols = Symbols(perf_maps=str(tmp_path))
        names = [name_in(symbols, pid=pid) for pid in (7, 8, 9)]
        return names, symbols.notes

    names, notes = bounded(work)  # type: ignore[misc]
    assert names[0] == "x"
    assert names[2] == "[unknown]"
    lost = [note for note in notes if "were not read: too many names" in note]
    sizes = [int(note.split()[0].replace(",", "")) for note in lost]
    whole = sum((tmp_path / f"perf-{pid}.map").stat().st_size for pid in (7, 8, 9))
    assert whole * 0.4 < sum(sizes) < whole


@pytest.mark.parametrize("make", attacks.MAPS.values(), ids=attacks.MAPS)
def test_any_map_is_read_in_bounds(tmp_path: Path, make: attacks.Maker) -> None:
    put(tmp_path / "perf-7.map", make(8_000_000))
    assert bounded(lambda: name_in(Symbols(perf_maps=str(tmp_path))))


# Exports of other profilers, stacks of py-spy, lists of perf


@pytest.mark.parametrize("make", attacks.PROFILES.values(), ids=attacks.PROFILES)
def test_any_profile_is_read_or_refused_in_bounds(tmp_path: Path, make: attacks.Maker) -> None:
    put(tmp_path / "f", make(3_000_000))

    def work() -> str:
        try:
            return f"{len(load(tmp_path / 'f').functions)} functions"
        except UnusableError as error:
            return str(error)

    message = str(bounded(work))
    assert "functions" in message or "export it again" in message or "export it grouped" in message


def stacks(path: Path) -> py_spy.PySpyStacks:
    return py_spy.read(path, 0, 10**9, 10**18, 10**7, {5: 10**18})


def test_a_sample_of_a_century_costs_no_more_than_its_bytes(tmp_path: Path) -> None:
    put(tmp_path / "f", attacks.long_ago(0))

    def work() -> tuple[int, int, int]:
        samples = stacks(tmp_path / "f").samples
        return len(samples), int(samples["weight_ns"].sum()), int(samples["count"].sum())

    rows, weight, count = bounded(work)  # type: ignore[misc]
    assert rows <= py_spy.MOST_ROWS
    assert weight == pytest.approx(10**17)
    assert count == pytest.approx(10**10, rel=1e-6)


def test_stacks_that_grow_are_summed_in_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lotus.joining import python_stacks

    put(tmp_path / "f", attacks.deep_stacks(2_000_000))
    label = [("operation", "Decode")]
    monkeypatch.setattr(python_stacks, "label", lambda nodes, places: label * len(nodes))

    def work() -> tuple[int, int]:
        table = python_stacks._sums(stacks(tmp_path / "f"), python_stacks._Places([]))
        return len(table), int(table["total_ns"].max() // table["self_ns"].min())

    rows, depth = bounded(work)  # type: ignore[misc]
    assert rows == 2_000_000 // 64 - 1
    assert depth >= rows - 1


@pytest.mark.parametrize("make", [attacks.one_event, attacks.json_nested])
def test_stacks_of_nothing_are_refused(tmp_path: Path, make: attacks.Maker) -> None:
    put(tmp_path / "f", make(20_000_000))

    def work() -> str:
        with pytest.raises(UnusableError) as error:
            stacks(tmp_path / "f")
        return str(error.value)

    assert "is damaged or ends early" in str(bounded(work))


@pytest.mark.parametrize("make", attacks.LISTS.values(), ids=attacks.LISTS)
def test_any_list_of_perf_is_read_in_bounds(make: attacks.Maker) -> None:
    text = make(4_000_000).decode()
    bounded(lambda: len(perf_list.parse_json(text).metrics))
