"""How often the launcher looks at the program: as often as it may cost."""

_SHARE = 0.007  # of a core; with the readings of memory, 1 %
_AT_FIRST_NS, _MOST_NS = 20e6, 35e6  # saved, or owed: what five seconds without looks leave
_QUICK_S = 0.04  # between looks as long as something is saved, which short loops need most
_LONGEST_S = 0.2  # between looks as long as little is owed, as after one that had much to find


class LookPace:
    """The time from a look to the next one. What looks leave unused, later ones may cost more."""

    def __init__(self) -> None:
        self._saved_ns = _AT_FIRST_NS  # negative: owed

    def until_next(self, cost_ns: float, least_s: float) -> float:
        """Return the seconds until the next look, at least `least_s`, after one of this cost."""
        self._saved_ns -= cost_ns
        usual_s = cost_ns / 1e9 / _SHARE
        if self._saved_ns >= 0:
            period_s = min(usual_s, _QUICK_S)
        elif self._saved_ns > -_MOST_NS:
            period_s = min(-self._saved_ns / 1e9 / _SHARE, _LONGEST_S)
        else:
            period_s = usual_s
        period_s = max(least_s, period_s)
        self._saved_ns = min(max(self._saved_ns, -_MOST_NS) + _SHARE * period_s * 1e9, _MOST_NS)
        return period_s
