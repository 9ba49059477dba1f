"""A name of a class or of a file stands for one thing in lotus/ and native_map/."""

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The programs of lotus/workloads/ are read one at a time, and name their transforms as torchvision
# does. A counted event of `inside` and one of `native_map`, which cannot share code, are the same.
# What a lower floor of `inside` needs of a class above it is a Protocol of that class's name.
# The callback of each training framework has one name, as it does the same there.
CLASSES = {"Normalize", "ToTensor", "Event", "Applier", "Recorder", "LotusCallback"}
# A verb's file has the verb's name, and `reading.run` is public. native_map, which is complete
# without lotus, has errors of its own.
FILES = {"errors", "run"}


def classes(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.If):
            yield from classes(statement.body)


def modules() -> list[Path]:
    return [path for top in ("lotus", "native_map") for path in (ROOT / top).rglob("*.py")]


def repeated(names: Iterator[str]) -> set[str]:
    return {name for name, count in collections.Counter(names).items() if count > 1}


def test_no_two_classes_have_one_name():
    names = (name for path in modules() for name in classes(ast.parse(path.read_text()).body))
    assert repeated(names) == CLASSES


def test_no_two_files_have_one_name():
    assert repeated(path.stem for path in modules() if path.stem != "__init__") == FILES
