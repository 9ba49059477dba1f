"""All ranks of a job come to one decision, over the store by which they found each other.

By counters and values of the store only: nothing is sent between the ranks, no port is opened.
Each rank leaves its answer. Who first sees that all have answered, or that the time is over, takes
the decision, and it holds for all: nobody goes by an answer that came too late.
"""

import json
import sys
from functools import partial

from ..common.guard import first_line
from .job_incarnation import Alone, Start
from .store_timeout import Patient, looks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Unknown(Exception):
    """What the others decided cannot be known."""


class Silent(Exception):
    """The store takes no answer: the others will wait for this rank, and go without it."""


def agree(
    store: "Any",
    rank: int,
    world: int,
    answer: "dict[str, Any]",
    wait_s: float,
    meanwhile: "Callable[[], object]" = lambda: None,
) -> str:
    """What is refused and why, in the same words for all ranks; "" where all agree.

    `store` is for this question alone. An answer has `of`, what it is about in words, `refused`,
    why this rank cannot ("" where it can), and `facts`, by name, which must be the same on all.
    `meanwhile` is called again and again. Raises Silent and Unknown.
    """
    try:
        store.set(f"answer{rank}", json.dumps(answer))
    except Exception as error:
        raise Silent(first_line(error)) from None
    try:
        store.add(f"answered{rank}", 1)
        store.add("answered", 1)
        # A decision that was taken already is all that one who is late waits for.
        all_in = _wait(store, {"answered": world, "said": 1}, wait_s, meanwhile)
        if store.add("decided", 1) == 1:
            store.set("decision", _decide(store, world, wait_s, all_in, str(answer["of"])))
            store.add("said", 1)
        elif not _wait(store, {"said": 1}, wait_s):
            raise Unknown(f"none was told within {wait_s:g} s")
        return str(bytes(store.get("decision")).decode())
    except Unknown:
        raise
    except Exception as error:
        raise Unknown(first_line(error)) from None


_start = Start()  # of the process


def ask(name: str, answer: "dict[str, Any]", wait_s: float) -> "tuple[str, Any]":
    """(what is refused, as `agree` has it; the part of the job's store for this question alone).

    Raises Silent and Unknown.
    """
    distributed: Any = sys.modules["torch.distributed"]
    rank, world = distributed.get_rank(), distributed.get_world_size()
    whole = distributed.PrefixStore("lotus", distributed.distributed_c10d._get_default_store())
    patient = Patient(whole, wait_s)
    try:
        start = _start.named(patient, rank, wait_s)
    except Alone:
        return f"{answer['of']}: {missing([0], wait_s)}", whole
    except Exception as error:
        raise Silent(first_line(error)) from None
    meanwhile = partial(_start.let_in, patient) if rank == 0 else lambda: None
    store = distributed.PrefixStore(f"{start}/{name}", whole)
    return agree(Patient(store, wait_s), rank, world, answer, wait_s, meanwhile), store


def answers(store: "Any", world: int, wait_s: float) -> "list[dict[str, Any]]":
    """What each rank left, by rank, after all agreed. Raises Unknown."""
    try:
        return left(Patient(store, wait_s), world)
    except Exception as error:
        raise Unknown(first_line(error)) from None


def left(store: "Any", world: int) -> "list[dict[str, Any]]":
    """What each rank left, by rank. Raises what the store raises."""
    # In one request: of 1,024 ranks 2 ms, where one after the other takes 86.
    found = store.multi_get([f"answer{rank}" for rank in range(world)])
    return [json.loads(bytes(one)) for one in found]


def _wait(
    store: "Any",
    wanted: "dict[str, int]",
    wait_s: float,
    meanwhile: "Callable[[], object]" = lambda: None,
) -> bool:
    """Whether one of these counters came to its number in time."""
    for _ in looks(wait_s):
        # By counters, as torch 2.2 has no `check` of a store with a prefix.
        if any(store.add(name, 0) >= many for name, many in wanted.items()):
            return True
        meanwhile()
    return False


def _decide(store: "Any", world: int, wait_s: float, all_in: bool, of: str) -> str:
    if not all_in:
        silent = [rank for rank in range(world) if store.add(f"answered{rank}", 0) == 0]
        if silent:
            return f"{of}: {missing(silent, wait_s)}"
    return decide(left(store, world))


def decide(answers: "list[dict[str, Any]]") -> str:
    """What all the answers come to, as `agree` returns it."""
    refusing = [rank for rank, answer in enumerate(answers) if answer["refused"]]
    if refusing:
        reason, of = (str(answers[refusing[0]][name]) for name in ("refused", "of"))
        same = [rank for rank in refusing if answers[rank]["refused"] == reason]
        where = "" if len(same) == len(answers) else f" (on {ranks(same)})"
        return f"{of}: {reason}{where}"
    first, of = answers[0]["facts"], answers[0]["of"]
    for rank, answer in enumerate(answers):
        for name in first:
            if answer["facts"].get(name) != first[name]:
                other = answer["facts"].get(name)
                return (
                    f"{of}: {name} is {first[name]!r:.80} on rank 0 "
                    f"and {other!r:.80} on rank {rank}"
                )
    return ""


def missing(silent: "list[int]", wait_s: float) -> str:
    """What is said of ranks that did not answer."""
    return (
        f"{ranks(silent)} did not answer within {wait_s:g} s; "
        "all must be started by lotus run with the same settings"
    )


def ranks(found: "list[int]") -> str:
    """As "rank 3", "ranks 1 and 2", "ranks 0, 4, 5 and 60 more"."""
    if len(found) == 1:
        return f"rank {found[0]}"
    if len(found) > 4:
        return f"ranks {', '.join(map(str, found[:3]))} and {len(found) - 3} more"
    return f"ranks {', '.join(map(str, found[:-1]))} and {found[-1]}"
