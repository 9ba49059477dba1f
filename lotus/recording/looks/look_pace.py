"""How often the launcher looks at the program: as often as it may cost."""

_SHARE = 0.007  # of a core; with the readings of memory, 1 %
_MOST_SAVED_NS = 35e6  # what five seconds without a loop leave
_QUICK_S = 0.04  # between looks as long as something is saved, which short loops need most


class LookPace:
    """The time from a look to the next one. What looks leave unused, later ones may cost more."""

    def __init__(self) -> None:
        self._saved_ns = 0.0

    def until_next(self, cost_ns: float, least_s: float) -> float:
        """Return the seconds until the next look, at least `least_s`, after one of this cost."""
        usual_s = cost_ns / 1e9 / _SHARE
        quick_s = min(usual_s, _QUICK_S) if self._saved_ns >= cost_ns else usual_s
        period_s = max(least_s, quick_s)
        saved_ns = self._saved_ns + _SHARE * period_s * 1e9 - cost_ns
        self._saved_ns = min(max(saved_ns, 0.0), _MOST_SAVED_NS)
        return period_s
