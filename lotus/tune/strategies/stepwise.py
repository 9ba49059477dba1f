"""The base class of simple strategies: a generator of settings, each measured once."""

from __future__ import annotations

from collections.abc import Generator

from lotus.settings.space import Measurement, Setting

# Yields (setting to measure, why), is sent its measurement, and returns why it ended.
Steps = Generator[tuple[Setting, str], Measurement, str]


class Remembering:
    """Implements `ask` and `tell` on top of a generator of steps.

    A setting that was measured before, also as another combination that makes the same loader, is
    answered from memory. A new measurement of a setting replaces the earlier one.
    """

    name = ""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._measured: dict[Setting, Measurement] = {}
        self._pending: Setting | None = None
        self._reason = "no setting was requested yet"
        self._done = False

    def ask(self) -> Setting | None:
        """Return the setting to measure next; None at the end."""
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
        """Record a measurement."""
        self._measured[measurement.setting.normal()] = measurement

    def best(self) -> Measurement | None:
        """Return the best measurement; None if none worked."""
        worked = [each for each in self._measured.values() if not each.failed]
        return min(worked, key=lambda m: (-m.samples_per_s, m.setting.normal()), default=None)

    def reason(self) -> str:
        """Explain the last answer of `ask`."""
        return self._reason
