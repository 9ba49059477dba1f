"""Lets all ranks of a job reach one decision through the job's rendezvous store.

Ranks use only counters and values of the store: they send each other nothing and open no port.
Each rank stores its answer. The first rank that sees all answers, or the end of the time limit,
decides for all ranks; answers that arrive later have no effect.
"""

import json
import sys
from functools import partial

from ..common.guard import first_line
from .job_incarnation import NoAnswerError, Start
from .store_timeout import StoreWithTimeout, attempts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class UnknownDecisionError(Exception):
    """The decision of the other ranks cannot be read."""


class UnsentAnswerError(Exception):
    """The store does not accept the answer; the other ranks will time out on this rank."""


def agree(
    store: "Any",
    rank: int,
    world: int,
    answer: "dict[str, Any]",
    wait_s: float,
    meanwhile: "Callable[[], object]" = lambda: None,
) -> str:
    """Return what is refused and why, with the same text on all ranks; "" if all ranks agree.

    `store` is used for this question only. An answer has `of`, a description of its subject,
    `refused`, the reason why this rank cannot take part ("" if it can), and `facts`, by name,
    which must be equal on all ranks. `meanwhile` is called repeatedly while waiting.
    Raises UnsentAnswerError and UnknownDecisionError.
    """
    try:
        store.set(f"answer{rank}", json.dumps(answer))
    except Exception as error:
        raise UnsentAnswerError(first_line(error)) from None
    try:
        store.add(f"answered{rank}", 1)
        store.add("answered", 1)
        # A late rank only has to wait for a decision that was already made.
        all_in = _wait(store, {"answered": world, "said": 1}, wait_s, meanwhile)
        if store.add("decided", 1) == 1:
            store.set("decision", _decide(store, world, wait_s, all_in, str(answer["of"])))
            store.add("said", 1)
        elif not _wait(store, {"said": 1}, wait_s):
            raise UnknownDecisionError(f"none arrived within {wait_s:g} s")
        return str(bytes(store.get("decision")).decode())
    except UnknownDecisionError:
        raise
    except Exception as error:
        raise UnknownDecisionError(first_line(error)) from None


_start = Start()  # as this process knows it


def ask(name: str, answer: "dict[str, Any]", wait_s: float) -> "tuple[str, Any]":
    """Ask all ranks; return (what `agree` returns, the part of the job's store for this question).

    Raises UnsentAnswerError and UnknownDecisionError.
    """
    distributed: Any = sys.modules["torch.distributed"]
    rank, world = distributed.get_rank(), distributed.get_world_size()
    job_store = distributed.PrefixStore("lotus", distributed.distributed_c10d._get_default_store())
    limited = StoreWithTimeout(job_store, wait_s)
    try:
        start = _start.named(limited, rank, wait_s)
    except NoAnswerError:
        return f"{answer['of']}: {missing([0], wait_s)}", job_store
    except Exception as error:
        raise UnsentAnswerError(first_line(error)) from None
    meanwhile = partial(_start.admit, limited) if rank == 0 else lambda: None
    store = distributed.PrefixStore(f"{start}/{name}", job_store)
    return agree(StoreWithTimeout(store, wait_s), rank, world, answer, wait_s, meanwhile), store


def answers(store: "Any", world: int, wait_s: float) -> "list[dict[str, Any]]":
    """Return the answers of all ranks, by rank, after all have agreed.

    Raises UnknownDecisionError.
    """
    try:
        return read_answers(StoreWithTimeout(store, wait_s), world)
    except Exception as error:
        raise UnknownDecisionError(first_line(error)) from None


def read_answers(store: "Any", world: int) -> "list[dict[str, Any]]":
    """Return the answers of all ranks, by rank. Raises whatever the store raises."""
    # One request: 2 ms for 1,024 ranks, where one request per rank takes 86.
    values = store.multi_get([f"answer{rank}" for rank in range(world)])
    return [json.loads(bytes(value)) for value in values]


def _wait(
    store: "Any",
    targets: "dict[str, int]",
    wait_s: float,
    meanwhile: "Callable[[], object]" = lambda: None,
) -> bool:
    """Return whether one of these counters reached its target in time."""
    for _ in attempts(wait_s):
        # Counters, because a PrefixStore of torch 2.2 has no `check`.
        if any(store.add(name, 0) >= target for name, target in targets.items()):
            return True
        meanwhile()
    return False


def _decide(store: "Any", world: int, wait_s: float, all_in: bool, of: str) -> str:
    if not all_in:
        silent = [rank for rank in range(world) if store.add(f"answered{rank}", 0) == 0]
        if silent:
            return f"{of}: {missing(silent, wait_s)}"
    return decide(read_answers(store, world))


def decide(answers: "list[dict[str, Any]]") -> str:
    """Return the decision that follows from all answers, as `agree` returns it."""
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
    """Return the text about ranks that did not answer."""
    return (
        f"{ranks(silent)} did not answer within {wait_s:g} s; "
        "all must be started by lotus run with the same settings"
    )


def ranks(numbers: "list[int]") -> str:
    """Return text such as "rank 3", "ranks 1 and 2" or "ranks 0, 4, 5 and 60 more"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 4:
        return f"ranks {', '.join(map(str, numbers[:3]))} and {len(numbers) - 3} more"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
