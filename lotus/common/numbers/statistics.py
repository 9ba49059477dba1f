"""Student's t, Wilson's interval and the normal quantile, from which intervals are computed.

Standard library only: the tuner computes intervals before numpy may be imported.
"""

import functools
import math
from statistics import NormalDist

LEVEL = 0.05  # of intervals and tests: 95 % confidence
Z95 = NormalDist().inv_cdf(1 - LEVEL / 2)  # 1.96 standard deviations on each side

_LARGE = 1000.0  # degrees of freedom from which on the expansion is more accurate and faster
_PRECISION = 1e-15
_MOST_STEPS = 500


def z_quantile(level: float = LEVEL) -> float:
    """Return the normal deviate that is exceeded in absolute value with probability `level`."""
    return -NormalDist().inv_cdf(level / 2)


@functools.lru_cache(maxsize=1024)
def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """Return the value that Student's t exceeds in absolute value with probability `level`.

    `freedom` need not be an integer (Welch). Without any degree of freedom it is infinite.
    """
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level}")
    if math.isnan(freedom):
        return math.nan
    if freedom <= 0:
        return math.inf
    if math.isinf(freedom):
        return z_quantile(level)
    # Newton's method on log p as a function of log t, which is nearly a straight line in the
    # tails; bisection wherever a step leaves the bracket.
    wanted = math.log(level)
    low, high = -745.0, 690.0
    if _log_p(math.exp(high), freedom) > wanted:  # it exceeds what a float holds
        return math.inf
    place = math.log(z_quantile(level))
    for _ in range(200):
        t = math.exp(place)
        log_p = _log_p(t, freedom)
        if log_p > wanted:
            low = place
        else:
            high = place
        slope = -2 * math.exp(_log_density(t, freedom) + place - log_p)
        step = (wanted - log_p) / slope if slope else math.inf
        following = place + step
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - place) <= _PRECISION * max(abs(place), 1.0):
            break
        place = following
    return math.exp(place)


def t_p_value(t: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds `t` in absolute value (two-sided)."""
    if math.isnan(t) or math.isnan(freedom):
        return math.nan
    t = abs(t)
    if t == 0 or freedom <= 0:
        return 1.0
    if math.isinf(t):
        return 0.0
    if math.isinf(freedom):
        return math.erfc(t / math.sqrt(2))
    return math.exp(_log_p(t, freedom))


def wilson(share: float, trials: float, level: float = LEVEL) -> tuple[float, float]:
    """Return Wilson's score interval of a share that was observed in `trials` independent trials.

    `trials` need not be an integer: correlated trials count as fewer. (0, 1) without any.
    """
    if not trials > 0:
        return 0.0, 1.0
    z = z_quantile(level)
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    variance = max(share * (1 - share), 0.0) / trials
    reach = z / scale * math.sqrt(variance + z * z / (4 * trials * trials))
    # Rounding must not leave the share itself outside.
    return min(max(middle - reach, 0.0), share), max(min(middle + reach, 1.0), share)


def _log_density(t: float, freedom: float) -> float:
    return (
        -_log_beta(freedom / 2)
        - math.log(freedom) / 2
        - (freedom + 1) / 2 * _log_one_plus_square(t / math.sqrt(freedom))
    )


def _log_p(t: float, freedom: float) -> float:
    """Return the logarithm of the two-sided p-value of t > 0: I_x(freedom / 2, 1 / 2)."""
    if freedom > _LARGE:
        z = _normal_deviate(t, freedom)
        if z < 35:  # beyond, erfc underflows
            return math.log(math.erfc(z / math.sqrt(2)))
    ratio = t / math.sqrt(freedom)
    a = freedom / 2
    log_x = -_log_one_plus_square(ratio)
    log_y = -_log_one_plus_square(1 / ratio) if ratio > 1e-150 else 2 * math.log(ratio)
    front = a * log_x + log_y / 2 - _log_beta(a)
    x, y = math.exp(log_x), math.exp(log_y)
    if x < (a + 1) / (a + 2.5):
        return front - math.log(a) + math.log(_continued_fraction(a, 0.5, x))
    return math.log1p(-min(2 * math.exp(front) * _continued_fraction(0.5, a, y), 1 - _PRECISION))


def _log_one_plus_square(ratio: float) -> float:
    return math.log1p(ratio * ratio) if ratio < 1e8 else 2 * math.log(ratio)


def _log_beta(a: float) -> float:
    """Return the logarithm of the beta function B(a, 1/2)."""
    if a < 50:
        return math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)
    # The difference of two large logarithms, by its asymptotic series.
    return math.log(math.pi / a) / 2 + 1 / (8 * a) - 1 / (192 * a**3) + 1 / (640 * a**5)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Return that of the incomplete beta function, by Lentz's method (Numerical Recipes, 6.4)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, _MOST_STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return result


def _normal_deviate(t: float, freedom: float) -> float:
    """Return the normal deviate of the same p-value, for many degrees of freedom (Hill 1970)."""
    a = freedom - 0.5
    b = 48 * a * a
    square = a * _log_one_plus_square(t / math.sqrt(freedom))
    w = math.sqrt(square)
    third = ((4 * square + 33) * square + 240) * square + 855
    return w * (1 + ((square + 3) - third / (10 * (b + 0.8 * square * square + 100))) / b)
