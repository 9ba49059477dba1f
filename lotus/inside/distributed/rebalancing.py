"""Adjusts shares while a job trains: `lotus run --settings ... --rebalance-every K`.

Experimental. The global batches and their number stay the same. Only the division of a step's
samples among the ranks changes, at the same step on all ranks. After every K averagings of
gradients, which all ranks count alike, each rank stores the cost of its steps and how many batches
it has drawn. The last rank to do so computes new shares (share_solver.py) and the first step that
uses them, which no rank has drawn yet. A rank that is about to draw a step that may be that one
waits for the decision. By then all ranks have passed the averaging after which they store their
costs, so the wait is short.
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
from .share_solver import Costs, rebalance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..common.patching import Around
    from .gradient_sync import BackwardPass
    from .gradient_weights import Weights

WAIT_S = 1800.0  # for other ranks, as long as torch waits for them in an averaging
_MANY = 100  # backward passes among which at least one averaging is expected
_AHEAD = 2  # batches that may be drawn before the decision has to be known


class Rebalancing:
    """The shares of all iterations of the shared loader in this process.

    Iterations are numbered when they draw their first batch. A position is (iteration, step).
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
    ) -> None:
        """`store` is used for nothing else; a rank takes between `least` and `most` samples."""
        self.now: Callable[[], int] = clock
        self.rank, self.every, self.weights, self.store = rank, every, weights, store
        self.note, self.most, self.least, self.wait_s = note, most, least, WAIT_S
        self.lock = threading.Lock()
        self.on = True
        self.iterations = 0
        self.latest: Drawn | None = None
        # Positions from which on shares apply.
        self.changes: list[tuple[tuple[int, int], tuple[int, ...]]] = [((0, 0), tuple(sizes))]
        # First position that must not be drawn before the next decision.
        self.limit: tuple[int, int] | None = None
        self.rounds = self.count = 0  # of decisions, of averagings
        self.costs = Costs(every)
        self.end: int | None = None  # of the last averaging
        self.waited = 0  # ns since then that this rank waited, for other ranks or for lotus
        self.why = ""  # why shares must not change any more
        self.broken = ""  # why this rank cannot reach the others

    # Batches that are drawn: the methods of a Steering.

    def begin(self, drawn: "Drawn") -> int:
        if not self.count and self.weights.passes >= _MANY:
            text = f"no averaging of gradients was seen in {self.weights.passes:,} backward passes"
            self.note(f"shares stay as they are: {text}")
        self.latest, number = drawn, self.iterations
        self.iterations += 1
        return number

    def sizes_at(self, number: int, step: int) -> "Sequence[int]":
        """Raises SystemExit if other ranks may continue with different shares."""
        at = (number, step)
        if self.limit is not None and at >= self.limit:
            begin = self.now()
            try:
                self._hear()
            except consensus.UnknownDecisionError as error:
                raise SystemExit(
                    f"lotus: from which step on the ranks have which shares cannot be known "
                    f"({error}); rank {self.rank} stops before it"
                ) from None
            self.waited += self.now() - begin
        return next(sizes for since, sizes in reversed(self.changes) if since <= at)

    # Measurements.

    def averaged(self, times: "tuple[int, int, int] | None") -> None:
        """Handle an averaging of gradients.

        `times` (ns): the start of the backward pass, when this rank's gradients were ready, and
        when they were averaged; None if the pass was not timed.
        """
        if not self.on:
            return
        self.count += 1
        at, costs, due = None, None, self.count % self.every == 0
        try:
            at = self._measure(times)
            costs = self.costs.summary() if due else None
        except Exception as error:
            if of_the_program(error):
                raise
            self.fault(error)
        if due:
            begin = self.now()
            self._tell(at, costs)
            self.waited += self.now() - begin

    def fault(self, error: Exception) -> None:
        """Handle an error in lotus: keep the shares, on all ranks."""
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

    # Communication between ranks.

    def _tell(self, at: "tuple[int, int] | None", costs: "dict[str, Any] | None") -> None:
        world = len(self.most)
        try:
            with self.lock:
                self._hear()  # the previous decision, if nothing has needed it yet
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
        except consensus.UnknownDecisionError as error:
            self.broken = str(error)
        except Exception as error:
            if of_the_program(error):
                raise
            self.broken = first_line(error)

    def _decide(self, world: int) -> None:
        answers = consensus.read_answers(self.store, world)
        try:
            decision = decide(answers, self.changes[-1][1], self.most, self.least)
        except Exception as error:
            if of_the_program(error):
                raise
            decision = {"over": f"{type(error).__name__}: {error}"}
        self.store.set("decision", json.dumps(decision))
        self.store.add("said", 1)

    def _hear(self) -> None:
        """Apply the latest decision. Raises consensus.UnknownDecisionError."""
        if self.limit is None:
            return
        if self.broken:
            raise consensus.UnknownDecisionError(self.broken)
        try:
            if not consensus._wait(self.store, {"said": self.rounds}, self.wait_s):
                raise consensus.UnknownDecisionError(f"none arrived within {self.wait_s:g} s")
            decision = json.loads(bytes(self.store.get("decision")))
        except consensus.UnknownDecisionError:
            raise
        except Exception as error:
            raise consensus.UnknownDecisionError(first_line(error)) from None
        self.limit = None
        if decision.get("over"):
            self.on = False
            self.note(f"shares stay as they are from now on: {decision['over']}")
        elif decision.get("for_now"):
            self.note(f"shares stay as they are for now: {decision['for_now']}")
        elif decision.get("sizes"):
            number, step = decision["at"]
            before, after = self.changes[-1][1], tuple(decision["sizes"])
            self.changes.append(((number, step), after))
            self.note(
                f"after {self.rounds * self.every:,} steps shares go from {shown(before)} "
                f"to {shown(after)}: {decision['why']}"
            )

    # The hooks.

    def install(self, listen: "Callable[[Any, str, Around], None]", later: "Any") -> None:
        """Time the waits in DistributedDataParallel.

        `later` takes functions, by module, to call when the module is imported. Raises
        AttributeError or KeyError for an unknown version of torch.
        """
        torch: Any = sys.modules["torch"]
        passes = _Passes(_TimesRecorder(self), torch)
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


class _TimesRecorder:
    """Receives the times from `Gradients`."""

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
    """Reports all averagings, including those without times, because all ranks count them."""

    def __init__(self, recorder: "Any", torch: "Any") -> None:
        super().__init__(recorder, torch)
        self.receiver: _TimesRecorder = recorder

    def ended(self, task: int, backward: "BackwardPass") -> None:
        self.receiver.times = None
        super().ended(task, backward)
        self.receiver.rebalancing.averaged(self.receiver.times)


def _waiting(original: "Callable[..., Any]", rebalancing: Rebalancing) -> "Callable[..., Any]":
    """Hook for `DistributedDataParallel._sync_buffers`, in which ranks wait for one of them."""

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
    """Return why the time of a rank's own part of a step cannot be measured; "" if it can."""
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
    """Return the decision that follows from all answers.

    It has `sizes`, `at` and `why` for new shares, `over` with the reason why shares never change
    again, or `for_now` with the reason why they do not change yet. It is empty if nothing changes
    for an ordinary reason.
    """
    first = answers[0]
    for rank, answer in enumerate(answers):
        if answer["why"]:
            return {"over": f"{answer['why']} (on rank {rank})"}
        # Ranks that count iterations differently would mean different steps by the same number.
        if answer["at"] != first["at"] or answer["drawn"][0] != first["drawn"][0]:
            return {"over": f"ranks 0 and {rank} do not read the same steps of the loader"}
        if answer["unclear"]:
            return {"for_now": f"batches are read that are not trained on (on rank {rank})"}
    number = first["drawn"][0]
    costs = [answer["costs"] for answer in answers]
    if first["at"] is None or first["at"][0] != number or None in costs:
        return {}
    if [cost["share"] for cost in costs] != list(sizes):
        return {}  # they have just changed
    shares = rebalance(costs, most, least)
    if shares is None:
        return {}
    furthest = max(answer["drawn"][1] for answer in answers)
    return {"sizes": shares[0], "at": [number, furthest + _AHEAD], "why": shares[1]}
