"""Which processes a process id stands for."""

import dataclasses
import os

import pytest

from lotus.attach.processes import process_discovery
from lotus.attach.processes.process_discovery import ProcessFacts
from lotus.common.errors import LotusError

TRAIN = ("python", "train.py")
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")


def process(pid: int, parent: int = 1, **changes: object) -> ProcessFacts:
    facts = ProcessFacts(pid, parent, os.geteuid(), "S", pid, TRAIN, "python", True, True)
    return dataclasses.replace(facts, **changes)  # type: ignore[arg-type]


def table(*processes: ProcessFacts) -> dict[int, ProcessFacts]:
    return {each.pid: each for each in processes}


SHELL = process(2, command=("bash",), python=False, torch=False)


@pytest.mark.parametrize("pid", [10, 11, 12])
def test_a_main_process_and_its_workers_stand_for_the_same(pid: int) -> None:
    processes = table(process(10), process(12, 10), process(11, 10), SHELL)
    (program,) = process_discovery.programs_of(pid, processes)
    assert program.main.pid == 10
    assert [worker.pid for worker in program.workers] == [11, 12]


def test_spawned_workers_and_what_helps_them() -> None:
    helper = ("python", "-c", "from multiprocessing.resource_tracker import main;main(3)")
    processes = table(
        process(10), process(11, 10, command=SPAWNED), process(12, 10, command=helper, torch=False)
    )
    (program,) = process_discovery.programs_of(10, processes)
    assert [worker.pid for worker in program.workers] == [11]


def test_workers_of_a_fork_server() -> None:
    server = ("python", "-c", "from multiprocessing.forkserver import main; main()")
    processes = table(
        process(10), process(11, 10, command=server, torch=False), process(12, 11, command=server)
    )
    (program,) = process_discovery.programs_of(12, processes)
    assert (program.main.pid, [worker.pid for worker in program.workers]) == (10, [12])


def test_an_agent_whose_ranks_are_starting_is_no_program_itself() -> None:
    agent = process(5, command=("python", "-m", "torch.distributed.run", "train.py"))
    for ranks in ((), (process(20, 5, torch=False),)):
        with pytest.raises(LotusError, match="none of them has loaded torch yet; try again"):
            process_discovery.programs_of(5, table(agent, *ranks))
    # A program whose arguments look like an agent's has workers and helpers, but no ranks.
    odd = process(6, command=(*TRAIN, "--with", "deepspeed"))
    helper = ("python", "-c", "from multiprocessing.resource_tracker import main;main(3)")
    processes = table(odd, process(7, 6, command=helper, torch=False))
    assert process_discovery.programs_of(6, processes)[0].main.pid == 6
    # Or it has none, or a Python program that it started beside itself, such as TensorBoard.
    for words in (("deepspeed",), ("--strategy", "deepspeed")):
        odd = process(6, command=("python", "train.py", *words))
        beside = process(7, 6, command=("python", "-m", "tensorboard.main"), torch=False)
        for processes in (table(odd), table(odd, beside)):
            assert process_discovery.programs_of(6, processes)[0].main.pid == 6
    unbuffered = process(5, command=("python", "-u", "-m", "torch.distributed.run", "train.py"))
    with pytest.raises(LotusError, match="none of them has loaded torch yet"):
        process_discovery.programs_of(5, table(unbuffered))


def test_an_agent_stands_for_its_ranks() -> None:
    agent = process(5, command=("python", "/env/bin/torchrun", "train.py"))
    ranks = [process(pid, 5, rank=rank) for pid, rank in ((21, 1), (20, 0))]
    programs = process_discovery.programs_of(5, table(agent, *ranks, process(30, 21)))
    assert [program.main.pid for program in programs] == [20, 21]
    assert [worker.pid for worker in programs[1].workers] == [30]


def test_a_program_that_spawns_ranks_stands_for_them() -> None:
    spawner = process(10, 2)
    ranks = [process(pid, 10, command=SPAWNED, joined=True) for pid in (12, 11)]
    beside = process(13, 10, command=SPAWNED)  # a pool of its own, say
    worker = process(20, 12, command=SPAWNED, name="pt_data_worker:0")
    processes = table(spawner, *ranks, beside, worker)
    for programs in (
        process_discovery.programs_of(10, processes),
        process_discovery.only_program(table(spawner, *ranks, worker)),
        process_discovery.programs_of(2, table(SHELL, spawner, *ranks, worker)),
    ):
        assert [(each.main.pid, each.main.rank) for each in programs] == [(11, 0), (12, 1)]
        assert [each.pid for each in programs[1].workers] == [20]
    # A rank stands for itself, and so does its worker.
    for pid in (12, 20):
        assert [each.main.pid for each in process_discovery.programs_of(pid, processes)] == [12]


def test_a_rank_that_starts_the_others_is_one_of_them() -> None:
    first = process(10, joined=True)
    second = process(11, 10, joined=True)
    worker = process(12, 10, name="pt_data_worker:0")
    programs = process_discovery.programs_of(10, table(first, second, worker))
    assert [each.main.pid for each in programs] == [10, 11]
    assert [each.pid for each in programs[0].workers] == [12]


def test_ranks_of_an_older_torch_are_known_by_their_workers() -> None:
    ranks = [process(pid, 10, command=SPAWNED) for pid in (11, 12)]
    workers = [process(pid, pid - 10, command=SPAWNED) for pid in (21, 22)]
    programs = process_discovery.programs_of(10, table(process(10), *ranks, *workers))
    assert [each.main.pid for each in programs] == [11, 12]
    # One spawned worker that starts a process is no job.
    (program,) = process_discovery.programs_of(10, table(process(10), ranks[0], workers[0]))
    assert program.main.pid == 10


def test_a_training_that_spawns_another_beside_its_workers_is_no_agent() -> None:
    worker = process(11, 10, name="pt_data_worker:0")
    other = process(12, 10, command=SPAWNED, joined=True)
    (program,) = process_discovery.programs_of(10, table(process(10), worker, other))
    assert (program.main.pid, [each.pid for each in program.workers]) == (10, [11])


def test_a_shell_of_several_trainings_lists_them() -> None:
    processes = table(SHELL, process(10, 2), process(11, 2, command=("python", "other.py")))
    with pytest.raises(LotusError, match=r"name one: 10 \(.*; 11 \("):
        process_discovery.programs_of(2, processes)
    ranks = table(SHELL, process(10, 2, rank=0), process(11, 2, rank=1, command=("python", "o.py")))
    assert len(process_discovery.programs_of(2, ranks)) == 2


def test_what_may_not_be_looked_at_and_is_no_python_is_refused() -> None:
    init = process(1, 0, command=("init",), python=None, torch=None)
    with pytest.raises(LotusError, match="not a Python program"):
        process_discovery.programs_of(1, table(init, process(10, 1)))


def test_a_shell_stands_for_the_training_that_it_started() -> None:
    (program,) = process_discovery.programs_of(2, table(SHELL, process(10, 2)))
    assert program.main.pid == 10


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (process(10, state="Z"), "has ended"),
        (process(10, state="T"), "kill -CONT 10"),
        (process(10, python=False, torch=False, command=("sleep", "9")), "not a Python program"),
        (process(10, torch=False), "not loaded torch"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_one_line(facts: ProcessFacts, words: str) -> None:
    with pytest.raises(LotusError, match=words) as refusal:
        process_discovery.programs_of(10, table(facts))
    assert "\n" not in str(refusal.value)


def test_a_process_that_is_not_there_is_refused_with_one_line() -> None:
    with pytest.raises(LotusError, match=f"no process {1 << 22} here"):  # more than Linux has
        process_discovery.programs_of(1 << 22, table(process(9)))


def test_of_a_process_that_we_may_not_look_into_a_little_can_be_read() -> None:
    (program,) = process_discovery.programs_of(10, table(process(10, torch=None)))
    assert program.main.pid == 10


def test_this_process_is_read() -> None:
    facts = process_discovery.read_process(os.getpid())
    assert facts is not None
    assert (facts.pid, facts.python, facts.parent) == (os.getpid(), True, os.getppid())
