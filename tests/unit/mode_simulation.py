"""Epochs of each mode of data-parallel training, event by event, as lotus/inside does it."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# A rank and the number of its step -> how long that takes.
Draw = Callable[[int, int], float]


def meeting(
    draw: Draw,
    ranks: int,
    batches: int,
    *,
    groups: Sequence[Sequence[int]] = (),
    within: float = 0.0,
    every: int = 1,
    averaging: float = 0.0,
) -> float:
    """Ranks of a group wait for each other in each step (`within`: what their averaging takes), all
    ranks after `every` steps and at the end. No groups: each rank is one."""
    groups = groups or [[rank] for rank in range(ranks)]
    now = [0.0] * ranks
    for step in range(batches):
        for group in groups:
            done = max(now[rank] + draw(rank, step) for rank in group)
            for rank in group:
                now[rank] = done + (within if len(group) > 1 else 0.0)
        if (step + 1) % every == 0 or step + 1 == batches:
            now = [max(now) + averaging] * ranks
    return now[0]


@dataclass
class _Rank:
    steps: int = 0  # in all
    since: int = 0  # numbers were handed over
    ahead: int = 0  # batches that are its own already
    round: int = 0  # it has handed over to
    stopped: bool = False  # waits for the round
    ended: bool = False


@dataclass(order=True)
class _Event:
    time: float
    order: int
    what: str = field(compare=False)
    rank: int = field(compare=False)


def apart(
    draw: Draw, ranks: int, batches: int, *, depth: int, averaging: float, staleness: int
) -> float:
    """No rank waits, batches go to who asks next; rounds of averaging follow each other."""
    left = ranks * batches
    all_ranks = [_Rank() for _ in range(ranks)]
    events: list[_Event] = []
    handed: dict[int, int] = {}
    over: dict[int, float] = {}  # when a round was over
    number = 0

    def at(time: float, what: str, rank: int) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, _Event(time, number, what, rank))

    def ask(member: _Rank) -> None:
        nonlocal left
        if left:
            left -= 1
            member.ahead += 1

    def begin(time: float, rank: int) -> None:
        member = all_ranks[rank]
        ask(member)
        if not member.ahead:
            member.ended = True
            if member.round in over or not member.round:
                hand_over(time, rank)
            return
        member.ahead -= 1
        at(time + draw(rank, member.steps), "step", rank)

    def hand_over(time: float, rank: int) -> None:
        member = all_ranks[rank]
        member.round, member.since = member.round + 1, 0
        handed[member.round] = handed.get(member.round, 0) + 1
        if handed[member.round] == ranks:
            at(time + averaging, "round", member.round)

    for _ in range(depth):
        for member in all_ranks:
            ask(member)
    for rank in range(ranks):
        begin(0.0, rank)
    while events:
        event = heapq.heappop(events)
        if event.what == "round":
            over[event.rank] = event.time
            if all(rank.ended for rank in all_ranks):
                return event.time
            for rank, member in enumerate(all_ranks):
                if member.stopped or member.ended:
                    hand_over(event.time, rank)
                if member.stopped:
                    member.stopped = False
                    begin(event.time, rank)
            continue
        member = all_ranks[event.rank]
        member.steps, member.since = member.steps + 1, member.since + 1
        if member.round and member.round not in over:
            if member.since > staleness:
                member.stopped = True
                continue
        else:
            hand_over(event.time, event.rank)
        begin(event.time, event.rank)
    raise AssertionError("a round was never over")
