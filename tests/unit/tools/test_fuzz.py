"""A short run of tools/fuzz/fuzz.py: no input makes a reader fail, and most are really read."""

import random
import resource
import subprocess
import sys

import pytest

from native_map.recording.perf_unpack import library
from tools.fuzz import fuzz
from tools.fuzz.changes import changed

BUSY = "import time\nwhile time.process_time() < 0.5: pass"
NATIVE = ("perf.data", "ELF file", "perf map", "perf list", "py-spy trace", "CSV profile")


@pytest.mark.parametrize("name", NATIVE)
def test_no_attack_makes_a_reader_fail(name, capsys, monkeypatch):
    if name == "perf.data" and not library():
        pytest.skip("libzstd is not installed")
    monkeypatch.setattr(fuzz, "ATTACKS", 1)
    monkeypatch.setattr(fuzz, "LARGEST", 5.5)
    tally = fuzz.fuzz(16, seed=3, only=[name])[name]
    assert (tally.inputs, tally.faults) == (16, []), capsys.readouterr().out


def test_no_input_makes_a_reader_fail(capsys):
    tallies = fuzz.fuzz(1200, seed=11)
    output = capsys.readouterr().out
    assert {name: tally.faults for name, tally in tallies.items() if tally.faults} == {}, output
    assert len(tallies) == 18
    assert sum(tally.inputs for tally in tallies.values()) >= 1200
    for name, tally in tallies.items():
        assert tally.passed >= tally.inputs / 2, name


def test_a_reader_that_fails_hangs_or_is_greedy_is_found(monkeypatch, tmp_path):
    def read(folder, data, passed):
        passed()
        kind = data[0]
        if kind == 0:
            raise KeyError("no such field")
        if kind == 1:
            while True:
                pass
        if kind == 2:
            monkeypatch.setattr(fuzz, "_peak", lambda: 1 << 40)
        if kind == 3:
            raise fuzz.LotusError("a\nb")
        if kind == 4:
            bytearray(2 * fuzz.MEMORY)
        if kind == 5:
            subprocess.run([sys.executable, "-I", "-S", "-c", BUSY], check=True)

    limits = resource.getrlimit(resource.RLIMIT_AS)
    monkeypatch.setattr(fuzz, "CPU_S", 0.3)
    monkeypatch.setattr(fuzz, "input_of", lambda reader, seed, number: bytes([number]))
    monkeypatch.setattr(fuzz, "_KNOWN", [fuzz.Reader("bad", 1.0, lambda dice: b"", read)])
    tally = fuzz.tried(fuzz._known()[0], tmp_path, 0, range(7), tmp_path / "kept")
    assert [number for number, _ in tally.faults] == [0, 1, 2, 3, 4, 5]
    words = ("KeyError: 'no such field' at test_fuzz.py", "Slow", "memory grew", "no line")
    words += ("MemoryError", "s of CPU time")
    assert all(word in fault for word, (_, fault) in zip(words, tally.faults, strict=True))
    assert len(list((tmp_path / "kept").iterdir())) == 6
    assert (tally.inputs, tally.passed, tally.refused) == (7, 7, 1)
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


def test_all_that_json_can_be_is_changed():
    seen = set()
    for seed in range(300):
        for value in ({"a": [1, {"b": "c"}]}, [], {}, "text", 3, None):
            seen.add(repr(changed(value, random.Random(seed))))
    assert {"[]", "{}", "'text'", "3", "None"} < seen  # have no parts
    assert len(seen) > 150
