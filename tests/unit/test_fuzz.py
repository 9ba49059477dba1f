"""A short run of tools/bench/fuzz.py: no input makes a reader fail, and most are really read."""

import random

from tools.bench import fuzz
from tools.bench.fuzz_changes import changed


def test_no_input_makes_a_reader_fail(capsys):
    found = fuzz.fuzz(1200, seed=11)
    said = capsys.readouterr().out
    assert {name: one.faults for name, one in found.items() if one.faults} == {}, said
    assert len(found) == 15
    assert sum(one.inputs for one in found.values()) >= 1200
    for name, one in found.items():
        assert one.passed >= one.inputs / 2, name


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

    monkeypatch.setattr(fuzz, "CPU_S", 0.3)
    monkeypatch.setattr(fuzz, "input_of", lambda reader, seed, number: bytes([number]))
    monkeypatch.setattr(fuzz, "_KNOWN", [fuzz.Reader("bad", 1.0, lambda dice: b"", read)])
    found = fuzz.tried(fuzz._known()[0], tmp_path, 0, range(5), tmp_path / "kept")
    assert [number for number, _ in found.faults] == [0, 1, 2, 3]
    words = ("KeyError: 'no such field' at test_fuzz.py", "Slow", "memory grew", "no line")
    assert all(word in fault for word, (_, fault) in zip(words, found.faults, strict=True))
    assert len(list((tmp_path / "kept").iterdir())) == 4
    assert (found.inputs, found.passed, found.refused) == (5, 5, 1)


def test_all_that_json_can_be_is_changed():
    seen = set()
    for seed in range(300):
        for value in ({"a": [1, {"b": "c"}]}, [], {}, "text", 3, None):
            seen.add(repr(changed(value, random.Random(seed))))
    assert {"[]", "{}", "'text'", "3", "None"} < seen  # have no parts
    assert len(seen) > 150
