"""Averages the changes of a model's parameters over all ranks while they train: experimental.

torch has nothing like it. A round is as in averaging.py, but no rank waits for it.
"""

import time

from ..common.guard import quiet
from .averaging import TRAILER, Averaging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .averaging import TensorSlot

_LONGEST_NAP_S = 0.02


class BackgroundAveraging(Averaging):
    """Each rank keeps training while its changes are averaged with those of the other ranks.

    One round is in flight at a time. `anchor` is the state that all ranks have in common: the sum
    of the means of all rounds so far. The parameters of a rank are `anchor` plus its own changes
    since then.

    A rank may leave its training loop before the end of an epoch and wait elsewhere for the others.
    Ranks that wait for it here then continue without it, and the round stays in flight. When that
    rank exits, the round fails, and there are no more rounds. When a rank exits that has not left
    its loop, the other ranks fail as well.
    """

    STEP_S, END_S = 30.0, 600.0  # the longest wait for a rank that is not known to have left
    GRACE_S = 2.0  # a rank whose loop is being left by an exception looks as if it had left

    def __init__(self, torch: "Any", model: "Any", group: "Any", store: "Any") -> None:
        """`store` is used for nothing else; its key "away" counts ranks that left their loop."""
        super().__init__(torch, model, group)
        self.store, self.away = store, False
        self.alone = False  # whether a round failed after a rank had left
        self.longest_s = 0.0  # duration of the longest round
        self.anchor = self.flat.rows()
        self.sent: list[Any] = []  # this rank's changes in the round in flight
        self.shared: list[Any] = []  # becomes the sum of all ranks' changes
        self.works: list[Any] = []
        self.compare_next = False  # whether the next round compares layouts
        # The layouts that the round in flight compares: arguments for `_is_same`.
        self.comparison: tuple[list[TensorSlot], Any] | None = None

    def go_away(self) -> None:
        """Tell the other ranks that this rank has left its loop."""
        if not self.away:
            self.away = True
            with quiet(Exception):  # the job may be over
                self.store.add("away", 1)

    def come_back(self) -> None:
        """Tell the other ranks that this rank is in its loop again."""
        if self.away:
            self.away = False
            self.store.add("away", -1)

    def fail(self) -> None:
        """Let the other ranks fail too, as an exception ends this rank's program."""
        with quiet(Exception):  # the job may be over
            self.come_back()
        self.away = True  # so that `go_away` no longer reports it

    def step(self, staleness: int) -> None:
        """Count a training step; wait if the round in flight is older than `staleness` steps."""
        try:
            if not self.alone:
                self._step(staleness)
        except RuntimeError:
            if not self._goes_on():
                raise

    def _step(self, staleness: int) -> None:
        self.steps += 1
        if self.works and (self._is_over() or (self.steps > staleness and self._wait(self.STEP_S))):
            self._apply()
        if not self.works:
            self._start_round(ended=False)
            if not staleness and self._wait(self.STEP_S):
                self._apply()

    def finish(self) -> bool:
        """Take part in rounds until no rank has batches left; this rank has none.

        Return whether all ranks have the same model now.
        """
        try:
            return not self.alone and self._finish()
        except RuntimeError:
            if not self._goes_on():
                raise
            return False

    def _finish(self) -> bool:
        if self.works:
            if not self._wait(self.END_S, self.GRACE_S):
                return False
            self._apply()
        over = False
        while not over:
            self._start_round(ended=True)
            if not self._wait(self.END_S, self.GRACE_S):
                return False
            over = self._apply()
        self.flat.copy_to_model(self.anchor)  # it contains the changes of all ranks
        return True

    def _goes_on(self) -> bool:
        """Return whether this rank goes on without the others after a round failed."""
        self.alone = self._has_left()
        return self.alone

    def _has_left(self) -> bool:
        """Return whether some rank is known to have left its loop."""
        with quiet(Exception):  # a store that is gone is no reason to fail
            return bool(self.store.add("away", 0))
        return False

    def _is_over(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def _wait(self, most_s: float, grace_s: float = 0.0) -> bool:
        """Wait for the round in flight; return whether it is complete.

        Give up after `most_s` seconds, or once a rank has been away for `grace_s` seconds.
        """
        begin, nap = time.monotonic(), 0.0002
        away_since: float | None = None
        while not self._is_over():
            now = time.monotonic()
            if now - begin > max(most_s, 10 * self.longest_s):
                return False
            if nap == _LONGEST_NAP_S:
                if not self._has_left():
                    away_since = None
                elif away_since is None:
                    away_since = now
                if away_since is not None and now - away_since >= grace_s:
                    return self._is_over()
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP_S)
        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        return True

    def _start_round(self, ended: bool) -> None:
        if self.compare_next:
            device = self.anchor[0].device
            slots, extremes, self.works = self._compare_layouts(device, background=True)
            self.compare_next, self.comparison = False, (slots, extremes)
            return
        now = self.flat.rows(self.anchor)
        self.sent = [row - anchor for row, anchor in zip(now, self.anchor, strict=True)]
        self.shared = [row.clone() for row in self.sent]
        self.shared[0][-2] = float(self.flat.changed())
        self.shared[0][-1] = float(ended)
        self.works = self._reduce(self.shared, background=True)
        self.steps = 0

    def _apply(self) -> bool:
        """Complete the round in flight; return whether all ranks have finished."""
        for work in self.works:
            work.wait()
        self.works = []
        if self.comparison is not None:
            (slots, extremes), self.comparison = self.comparison, None
            if self._is_same(slots, extremes):
                # New tensors start at 0 in `anchor`: the next round carries all of their values.
                values, before = dict(self.flat.parts(self.anchor)), self.flat.slots
                self.flat.set_layout(slots)
                same = [slot.name for slot in slots if before.get(slot.name) == slot]
                self.anchor = self.flat.pack({name: values[name] for name in same})
            return False
        changed, finished = self.shared[0][-2:].tolist()
        self.compare_next = changed > 0
        mean = [row / self.world for row in self.shared]
        for row in mean:
            row[-TRAILER:] = 0.0
        pairs = zip(self.flat.rows(self.anchor), mean, self.sent, strict=True)
        self.flat.copy_to_model([now + common - own for now, common, own in pairs])
        self.anchor = [anchor + common for anchor, common in zip(self.anchor, mean, strict=True)]
        return bool(finished == self.world) and not self.compare_next
