"""The probability that isolated runs sample a short function (the Lotus paper, section IV-B).

A sampler with an interval of `interval_s` seconds samples a function of `function_s` seconds with
probability f/s in one execution, and in at least one of n independent ones with 1 - (1 - f/s)^n.
"""

import math


def capture_probability(function_s: float, interval_s: float, executions: int) -> float:
    """Return the probability that at least one of the executions is sampled, 0 to 1."""
    once = _once(function_s, interval_s)
    if executions < 0:
        raise ValueError("executions must not be negative")
    if once == 1.0:
        return 1.0 if executions else 0.0
    # log1p and expm1 are accurate for small f/s.
    return -math.expm1(executions * math.log1p(-once))


def executions_needed(function_s: float, interval_s: float, target: float = 0.95) -> int:
    """Return the fewest executions with a capture probability of at least `target` (0 to < 1)."""
    once = _once(function_s, interval_s)
    if not 0.0 <= target < 1.0:
        raise ValueError("the wanted probability must be at least 0 and below 1")
    if target == 0.0:
        return 0
    if once == 1.0:
        return 1
    needed = math.ceil(math.log1p(-target) / math.log1p(-once))
    # The ceiling of a quotient of logarithms may be off by one.
    while needed > 1 and capture_probability(function_s, interval_s, needed - 1) >= target:
        needed -= 1
    while capture_probability(function_s, interval_s, needed) < target:
        needed += 1
    return needed


def shortest_captured(interval_s: float, executions: int, target: float = 0.95) -> float:
    """Return the seconds from which a function is sampled with probability `target`."""
    if executions < 1 or not 0.0 <= target < 1.0 or not interval_s > 0:
        raise ValueError("executions, the interval and the probability must be positive")
    return -interval_s * math.expm1(math.log1p(-target) / executions)


def _once(function_s: float, interval_s: float) -> float:
    if not (0 < function_s < math.inf and 0 < interval_s < math.inf):
        raise ValueError("the function's time and the sampling interval must be positive")
    once = min(1.0, function_s / interval_s)
    if once < 1e-15:
        raise ValueError("the function is too short for this sampling interval ever to catch it")
    return once
