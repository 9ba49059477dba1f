"""How long a loop may make no progress before that is called a standstill."""

import math

_LEAST_NS, _TIMES = 10_000_000_000, 20  # at least; and in median times of a batch


def hang_threshold_ns(typical_ns: float) -> float:
    """Return it for a loop with this median time of a batch; NaN: not known."""
    return _LEAST_NS if math.isnan(typical_ns) else max(_LEAST_NS, _TIMES * typical_ns)
