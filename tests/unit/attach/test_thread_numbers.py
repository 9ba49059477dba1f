"""Threads of a container, which has numbers of its own for them."""

from pathlib import Path

import pandas as pd

from lotus.attach.processes.thread_numbers import ThreadNumbers, process_of
from native_map.recording.py_spy import PySpyStacks


def process(proc: Path, *threads: tuple[int, ...]) -> None:
    """The first thread is the process; each has one number for each namespace, ours first."""
    folder = proc / str(threads[0][0])
    for numbers in threads:
        (folder / "task" / str(numbers[0])).mkdir(parents=True)
        line = "\t".join(map(str, numbers))
        text = f"Name:\tpython\nNSpid:\t{line}\nNSpgid:\t1\n"
        (folder / "task" / str(numbers[0]) / "status").write_text(text)
    (folder / "status").write_text((folder / "task" / folder.name / "status").read_text())


def stacks(*threads: tuple[int, int]) -> PySpyStacks:
    table = pd.DataFrame(threads, columns=["pid", "tid"])
    return PySpyStacks(table.assign(node=0), pd.DataFrame(), table.assign(name="t"), 0)


def test_threads_get_our_numbers(tmp_path: Path) -> None:
    process(tmp_path, (500, 7), (501, 8))
    process(tmp_path, (600,))
    numbers = ThreadNumbers(tmp_path)
    numbers.look([500, 600, 700])
    ours = numbers.translated(stacks((500, 7), (500, 8), (500, 9), (600, 600)))
    assert ours.samples["tid"].tolist() == [500, 501, 9, 600]
    assert ours.threads["tid"].tolist() == [500, 501, 9, 600]
    assert (numbers.inner(500), numbers.inner(600)) == (7, 600)


def test_a_number_of_a_container_is_found(tmp_path: Path) -> None:
    process(tmp_path, (500, 7))
    process(tmp_path, (7,))
    assert process_of(7, tmp_path) == 500
    assert process_of(8, tmp_path) is None
    process(tmp_path, (600, 7))
    assert process_of(7, tmp_path) is None
