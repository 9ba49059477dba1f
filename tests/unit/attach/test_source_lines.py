"""Which loops of a source only hand on what they take."""

from pathlib import Path

import pytest

from lotus.attach.stacks.source_lines import SourceLines

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


CLASSES = """
class Base(torch.utils.data.Dataset[int]): ...
class Augments(object): ...
class Pictures(Augments, Base): ...
class Aug(made()): ...
"""


@pytest.mark.parametrize(("line", "hands_on"), [(3, False), (6, True), (9, True), (13, False)])
def test_a_loop_that_only_hands_on(tmp_path: Path, line: int, hands_on: bool) -> None:
    file = tmp_path / "train.py"
    file.write_text(CODE)
    loop = SourceLines().loop(str(file), line)
    assert loop is not None
    assert loop.first <= line <= loop.last
    assert loop.hands_on is hands_on


def test_objects_of_two_classes(tmp_path: Path) -> None:
    file, other = tmp_path / "data.py", tmp_path / "more.py"
    file.write_text(CLASSES)
    other.write_text("class Small(data.Pictures): ...\nclass Loop(Loop): ...")
    sources, files = SourceLines(), [str(file), str(other)]
    for one in ("Pictures", "Base", "Augments", "Dataset", "Small"):
        assert sources.are_kin(one, "Pictures", files)
        assert sources.are_kin("Base", one, files)
        assert not sources.are_kin("Aug", one, files)
    assert not sources.are_kin("Small", "Base", files[:1])
    assert sources.are_kin("Aug", "Aug", ())
    assert not sources.are_kin("", "Aug", files)  # called by a plain function


COMPREHENSIONS = """
losses = [step(batch) for batch in loader]
total = sum(step(batch) for batch in loader)
later = (prepare(batch) for batch in loader)
for batch in loader: losses += [loss(x) for x in batch]
while True:
    moved = [x.cuda() for x in next(iterator)]
    more = [next(iterator) for iterator in iterators]
    wide = {
        key(batch): step(batch)
        for batch in loader
    }
"""


@pytest.mark.parametrize(
    ("line", "function", "expected"),
    [
        (2, "main.<locals>.<listcomp>", (2, 2, False)),
        (2, "main", (2, 2, False)),  # Python 3.12 and later
        (2, "<genexpr>", None),
        (3, "<genexpr>", (3, 3, False)),
        (3, "main", None),
        (4, "<genexpr>", (4, 4, True)),
        (5, "main", None),
        (7, "main", None),
        (8, "main", (8, 8, True)),
        (11, "main", (9, 12, False)),
    ],
)
def test_a_comprehension_is_a_loop_of_the_frame_that_runs_it(
    tmp_path: Path, line: int, function: str, expected: tuple[int, int, bool] | None
) -> None:
    file = tmp_path / "train.py"
    file.write_text(COMPREHENSIONS)
    loop = SourceLines().comprehension(str(file), line, function)
    assert (loop and (loop.head, loop.last, loop.hands_on)) == expected
