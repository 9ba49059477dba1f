"""What all strategies share: steps that yield settings, each measured once and remembered."""

from __future__ import annotations

from collections.abc import Generator

from lotus.settings.space import Measurement, Setting

# A setting to measure and why; the answer is its measurement.
Steps = Generator[tuple[Setting, str], Measurement, str]


class Remembering:
    """Turns steps, a generator that ends with the reason why, into asking and telling.

    A step whose setting was told before, also by another combination that makes the same loader,
    is answered from memory. A setting told again counts as told last.
    """

    name = ""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._measured: dict[Setting, Measurement] = {}
        self._pending: Setting | None = None
        self._reason = "nothing was asked for yet"
        self._done = False

    def ask(self) -> Setting | None:
        """The setting to measure next; None: no more."""
        while not self._done and (self._pending is None or self._pending in self._measured):
            try:
                if self._pending is None:
                    setting, self._reason = next(self._steps)
                else:
                    setting, self._reason = self._steps.send(self._measured[self._pending])
                self._pending = setting.normal()
            except StopIteration as end:
                self._done, self._reason = True, end.value
        return None if self._done else self._pending

    def tell(self, measurement: Measurement) -> None:
        """Take in what a setting gave."""
        self._measured[measurement.setting.normal()] = measurement

    def best(self) -> Measurement | None:
        """The best measurement; None: none worked."""
        worked = [each for each in self._measured.values() if not each.failed]
        return min(worked, key=lambda m: (-m.samples_per_s, m.setting.normal()), default=None)

    def reason(self) -> str:
        """Why that setting, or why no more."""
        return self._reason
