"""Samples that take as long as Linux delays the acknowledgement of a TCP packet.

Who sends a message in two small packets waits, by Nagle's algorithm, for the acknowledgement of the
first one before it sends the second; who receives it delays that by 40 ms (the kernel's
TCP_DELACK_MIN), for an answer that could carry it. TCP_NODELAY on the sending side avoids that.
"""

import math

import numpy as np

from lotus.analysis.common.columns import float_column
from lotus.analysis.common.scope import Scope
from lotus.analysis.samples.first_samples import first_samples

DELAYED_SHARE = "delayed_ack_share"
DELAYED_FACTS = {
    DELAYED_SHARE: "Share of samples that took 40 to 52 ms, as a delayed acknowledgement does, "
    "0 to 1."
}
MOST_DELAYED = 0.8  # of the samples: with as many, it is mentioned
_FROM_NS, _TO_NS = 40e6, 52e6  # the timer, and some work beside it
_LEAST = 30  # samples


def delayed_share(scope: Scope) -> float:
    """Return the share of samples that took about 40 ms, 0 to 1; NaN: too few samples."""
    times = float_column(first_samples(scope), "duration_ns")
    times = times[np.isfinite(times)]
    if len(times) < _LEAST:
        return math.nan
    return float(((times >= _FROM_NS) & (times < _TO_NS)).mean())
