"""Which loops of a source only hand on what they take."""

from pathlib import Path

import pytest

from lotus.attach.source_lines import SourceLines

CODE = """
for batch in loader:
    train(batch)
def shard(loader):
    for batch in loader:
        yield move(batch)
for _ in range(count):
    try:
        batches.append(next(iterator))
    except StopIteration:
        break
while True:
    train(next(iterator))
    save()
"""


@pytest.mark.parametrize(("line", "hands_on"), [(3, False), (6, True), (9, True), (13, False)])
def test_a_loop_that_only_hands_on(tmp_path: Path, line: int, hands_on: bool) -> None:
    file = tmp_path / "train.py"
    file.write_text(CODE)
    loop = SourceLines().loop(str(file), line)
    assert loop is not None
    assert loop.first <= line <= loop.last
    assert loop.hands_on is hands_on
