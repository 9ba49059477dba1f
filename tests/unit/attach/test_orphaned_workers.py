"""Which processes are workers that outlived their program."""

import dataclasses

import pytest

from lotus.attach import orphaned_workers
from lotus.attach.processes import process_discovery
from lotus.attach.processes.process_discovery import ProcessFacts

TRAIN = ("python", "train.py")
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
INIT = ProcessFacts(1, 0, 0, "S", 1, ("init",), "init", False, False)


def process(pid: int, parent: int = 1, **changes: object) -> ProcessFacts:
    facts = ProcessFacts(pid, parent, 0, "S", pid, TRAIN, "python", True, True, forked=True)
    return dataclasses.replace(facts, **changes)  # type: ignore[arg-type]


def pids(*processes: ProcessFacts, workers: tuple[int, ...] = (), named: int | None = None):  # type: ignore[no-untyped-def]
    table = {each.pid: each for each in (INIT, *processes)}
    return [
        each.pid
        for each in orphaned_workers.orphaned_workers(table, named, lambda pid: pid in workers)
    ]


def test_a_worker_whose_parent_is_gone_is_left_over() -> None:
    name = {"name": "pt_data_worker"}
    assert pids(process(12, **name), process(11, **name)) == [11, 12]
    assert pids(process(11, 7, **name)) == [11]  # nobody adopted it yet
    main = process(10, forked=False)
    assert pids(main, process(11, 10, **name)) == []
    assert pids(process(11, command=SPAWNED, forked=False, **name)) == [11]


def test_of_other_adopted_processes_the_stack_decides() -> None:
    assert pids(process(11), process(12), workers=(12,)) == [12]
    assert pids(process(11), process(12), workers=(11, 12), named=11) == [11]
    assert pids(process(11, forked=False), workers=(11,)) == []
    assert pids(process(11, torch=False), process(12, state="Z"), workers=(11, 12)) == []


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 worker (11) is"), (2, "2 workers (11, 12) are")]
)
def test_the_command_that_ends_them_is_told(count: int, words: str) -> None:
    text = orphaned_workers.sentence([11, 12][:count])
    assert text.startswith(f"{words} left over")
    just_now = orphaned_workers.sentence([11, 12][:count], just_now=True)
    assert just_now.startswith(f"{words.rpartition(' ')[0]} still ran when ")
    for each in (text, just_now):
        assert each.endswith(f"what is left with: kill {' '.join(['11', '12'][:count])}")
    assert orphaned_workers.sentence([]) == ""


def test_a_process_that_was_started_as_a_program_was_not_forked() -> None:
    facts = process_discovery.read_process(1)
    assert facts is not None
    assert not facts.forked
