"""Shares that are chosen anew while a job trains: `lotus run --settings ... --rebalance-every K`.

The global batch stays what it is and so do its steps; only how a step's samples go to the ranks
changes, at the same step on all of them. After every K averagings of gradients, which all ranks
count alike, each leaves in the job's store what its steps cost and how far its batches were drawn.
The last one to do so decides (share_solver.py) by what all have left, and from which step on that
holds: one that no rank has drawn. A rank that comes to draw what may be it waits until it knows; by
then all have passed the averaging after which they told, so the wait is short and ends.
"""

import _thread
import json
import os
import sys
import threading
from functools import partial

from ..common.clocks import clock
from ..common.guard import first_line, hook, of_the_program
from ..common.patching import hide
from . import consensus
from .batch_shares import Drawn, shown
from .gradient_sync import Gradients, _why_not, checkpoint_backward, post_forward
from .share_solver import Costs, level

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..common.patching import Around
    from .gradient_sync import Pass
    from .gradient_weights import Weights

WAIT_S = 1800.0  # for the others, as long as torch waits for them in an averaging
_MANY = 100  # backward passes, of which one at least is averaged
_AHEAD = 2  # batches that are drawn before one has to know what was decided


class Rebalancing:
    """The shares of all iterations of the shared loader in this process.

    Iterations are counted as they draw their first batch. A position is (iteration, step).
    """

    def __init__(
        self,
        sizes: "Sequence[int]",
        rank: int,
        every: int,
        weights: "Weights",
        store: "Any",
        note: "Callable[[str], None]",
        most: "Sequence[int]",
        least: int = 1,
        wait_s: float = WAIT_S,
        now: "Callable[[], int]" = clock,
    ) -> None:
        """`store` is for this alone; `most`, `least`: samples that a rank may and must take."""
        self.now = now
        self.rank, self.every, self.weights, self.store = rank, every, weights, store
        self.note, self.most, self.least, self.wait_s = note, most, least, wait_s
        self.lock = threading.Lock()
        self.on = True
        self.iterations = 0
        self.latest: Drawn | None = None
        # From which position on which shares hold.
        self.changes: list[tuple[tuple[int, int], tuple[int, ...]]] = [((0, 0), tuple(sizes))]
        self.limit: tuple[int, int] | None = None  # what is not drawn until it is decided
        self.rounds = self.count = 0  # of telling, of averagings
        self.costs = Costs(every)
        self.end: int | None = None  # of the last averaging
        self.waited = 0  # since then, for others or for us
        self.why = ""  # shares are not to change any more
        self.broken = ""  # this rank cannot tell, or not hear

    # What is drawn. As a Steering.

    def begin(self, drawn: "Drawn") -> int:
        if not self.count and self.weights.passes >= _MANY:
            text = f"no averaging of gradients was seen in {self.weights.passes:,} backward passes"
            self.note(f"shares stay as they are: {text}")
        self.latest, number = drawn, self.iterations
        self.iterations += 1
        return number

    def sizes_at(self, number: int, step: int) -> "Sequence[int]":
        """Raises SystemExit where other ranks may go on with other shares than this one."""
        at = (number, step)
        if self.limit is not None and at >= self.limit:
            begin = self.now()
            try:
                self._hear()
            except consensus.Unknown as error:
                raise SystemExit(
                    f"lotus: from which step on the ranks have which shares cannot be known "
                    f"({error}); rank {self.rank} stops before it"
                ) from None
            self.waited += self.now() - begin
        return next(sizes for since, sizes in reversed(self.changes) if since <= at)

    # What is measured.

    def averaged(self, times: "tuple[int, int, int] | None") -> None:
        """The gradients of all ranks were averaged: when that pass began, this rank had its own,
        they were averaged (ns); None where it was not timed."""
        if not self.on:
            return
        self.count += 1
        at, costs, due = None, None, self.count % self.every == 0
        try:
            at = self._measure(times)
            costs = self.costs.told() if due else None
        except Exception as error:
            if of_the_program(error):
                raise
            self.fault(error)
        if due:
            begin = self.now()
            self._tell(at, costs)
            self.waited += self.now() - begin

    def fault(self, error: Exception) -> None:
        """A mistake of ours: shares stay, on all ranks."""
        self.why = self.why or f"{type(error).__name__}: {error}"

    def _measure(self, times: "tuple[int, int, int] | None") -> "tuple[int, int] | None":
        trained, at, share = self.weights.trained(), None, 0
        if trained is not None and type(trained[0]) is Drawn:
            drawn, step = trained
            at = (drawn.number, step)
            sizes = drawn.sizes_at(step)
            share = sizes[self.rank] if drawn.taken(step) is sizes else 0
        own, wait = None, 0
        if times is not None:
            _, ready, end = times
            wait = end - ready
            own = None if self.end is None else ready - self.end - self.waited
        self.costs.add(at, share, own, wait)
        self.end, self.waited = None if times is None else times[2], 0
        return at

    # What the ranks tell each other.

    def _tell(self, at: "tuple[int, int] | None", costs: "dict[str, Any] | None") -> None:
        world = len(self.most)
        try:
            with self.lock:
                self._hear()  # what was decided on the last time, where nothing needed it yet
                if not self.on:
                    return
                drawn = (0, 0) if self.latest is None else (self.latest.number, self.latest.drawn)
                self.limit = (drawn[0], drawn[1] + _AHEAD)
                self.rounds += 1
            if at is not None and _thread.get_ident() != self.weights.thread:
                self.why = self.why or "batches are read in another thread than they are trained in"
            answer: dict[str, Any] = {"at": at, "drawn": drawn, "costs": costs}
            answer |= {"why": self.why, "unclear": self.weights.unclear}
            self.store.set(f"answer{self.rank}", json.dumps(answer))
            if self.store.add("answered", 1) == world * self.rounds:
                self._decide(world)
        except consensus.Unknown as error:
            self.broken = str(error)
        except Exception as error:
            if of_the_program(error):
                raise
            self.broken = first_line(error)

    def _decide(self, world: int) -> None:
        answers = consensus.left(self.store, world)
        try:
            found = decide(answers, self.changes[-1][1], self.most, self.least)
        except Exception as error:
            if of_the_program(error):
                raise
            found = {"over": f"{type(error).__name__}: {error}"}
        self.store.set("decision", json.dumps(found))
        self.store.add("said", 1)

    def _hear(self) -> None:
        """Take over what was decided on what all told last. Raises consensus.Unknown."""
        if self.limit is None:
            return
        if self.broken:
            raise consensus.Unknown(self.broken)
        try:
            if not consensus._wait(self.store, {"said": self.rounds}, self.wait_s):
                raise consensus.Unknown(f"none was told within {self.wait_s:g} s")
            found = json.loads(bytes(self.store.get("decision")))
        except consensus.Unknown:
            raise
        except Exception as error:
            raise consensus.Unknown(first_line(error)) from None
        self.limit = None
        if found.get("over"):
            self.on = False
            self.note(f"shares stay as they are from now on: {found['over']}")
        elif found.get("for_now"):
            self.note(f"shares stay as they are for now: {found['for_now']}")
        elif found.get("sizes"):
            number, step = found["at"]
            before, after = self.changes[-1][1], tuple(found["sizes"])
            self.changes.append(((number, step), after))
            self.note(
                f"after {self.rounds * self.every:,} steps shares go from {shown(before)} "
                f"to {shown(after)}: {found['why']}"
            )

    # The hooks.

    def install(self, listen: "Callable[[Any, str, Around], None]", later: "Any") -> None:
        """Time what DistributedDataParallel waits for. `later`: functions by module, for modules
        that are imported after this. Raises AttributeError, KeyError for an unknown torch."""
        torch: Any = sys.modules["torch"]
        passes = _Passes(_Recorder(self), torch)
        cls: Any = torch.nn.parallel.DistributedDataParallel
        listen(cls, "_post_forward", partial(post_forward, gradients=passes))
        listen(cls, "_sync_buffers", partial(_waiting, rebalancing=self))

        def checkpoints(module: "Any") -> None:
            around = partial(checkpoint_backward, gradients=passes)
            listen(module.CheckpointFunction, "backward", around)

        known = sys.modules.get("torch.utils.checkpoint")
        if known is not None:
            checkpoints(known)
        else:
            later.setdefault("torch.utils.checkpoint", []).append(checkpoints)


class _Recorder:
    """What Gradients tells its times to."""

    def __init__(self, rebalancing: Rebalancing) -> None:
        self.rebalancing = rebalancing
        self.pid = os.getpid()
        self.times: tuple[int, int, int] | None = None

    @property
    def on(self) -> bool:
        return self.rebalancing.on

    def add_sync(self, step: int, start: int, ready: int, end: int, models: int) -> None:
        self.times = start, ready, end

    def event(self, fact: "dict[str, Any]") -> None:
        if fact["event"] == "note":
            self.rebalancing.why = self.rebalancing.why or fact["text"]

    def look_around(self) -> None:
        pass

    def fault(self, error: Exception) -> None:
        self.rebalancing.fault(error)


class _Passes(Gradients):
    """Passes all averagings on, also those that cannot be timed, as all ranks count them."""

    def __init__(self, recorder: "Any", torch: "Any") -> None:
        super().__init__(recorder, torch)
        self.told: _Recorder = recorder

    def ended(self, task: int, found: "Pass") -> None:
        self.told.times = None
        super().ended(task, found)
        self.told.rebalancing.averaged(self.told.times)


def _waiting(original: "Callable[..., Any]", rebalancing: Rebalancing) -> "Callable[..., Any]":
    """Hook for `DistributedDataParallel._sync_buffers`, in which ranks wait for another one."""

    def _sync_buffers(self: "Any") -> "Any":
        begin = rebalancing.now()
        try:
            return original(self)
        except BaseException as error:
            hide(error)
            raise
        finally:
            rebalancing.waited += rebalancing.now() - begin

    return hook(_sync_buffers)


def unfit(models: "Sequence[Any]") -> str:
    """Why what a rank's own part of a step takes cannot be timed; "" where it can."""
    for model in models:
        why = _why_not(model)
        if why:
            return f"the steps of {type(model.module).__name__} cannot be timed: {why}"
    return ""


def decide(
    answers: "Sequence[dict[str, Any]]",
    sizes: "Sequence[int]",
    most: "Sequence[int]",
    least: int,
) -> "dict[str, Any]":
    """What all the answers come to: `sizes`, `at` and `why` for new shares; `over`, why they stay
    from now on; `for_now`, why they stay until there is more; empty where that is no news."""
    first = answers[0]
    for rank, answer in enumerate(answers):
        if answer["why"]:
            return {"over": f"{answer['why']} (on rank {rank})"}
        # Ranks that count iterations otherwise would mean another step by the same number.
        if answer["at"] != first["at"] or answer["drawn"][0] != first["drawn"][0]:
            return {"over": f"ranks 0 and {rank} do not read the same steps of the loader"}
        if answer["unclear"]:
            return {"for_now": f"batches are read that are not trained on (on rank {rank})"}
    number = first["drawn"][0]
    costs = [answer["costs"] for answer in answers]
    if first["at"] is None or first["at"][0] != number or None in costs:
        return {}
    if [one["share"] for one in costs] != list(sizes):
        return {}  # they changed just now
    found = level(costs, most, least)
    if found is None:
        return {}
    furthest = max(answer["drawn"][1] for answer in answers)
    return {"sizes": found[0], "at": [number, furthest + _AHEAD], "why": found[1]}
