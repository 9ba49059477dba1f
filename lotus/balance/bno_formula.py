"""BalanceNet Orchestrator ("A KQV-based Dynamic Task Allocation for Distributed Deep Learning").

Equations 1 to 5, unchanged, for N nodes:

    K_i    = OPS_i / sum_k OPS_k                                                   (1)
    MW_i   = 1 - MU_i / sum_k MU_k                                                 (2)
    NL     = T_response - T_request                                                (3)
    NCW_ij = 1 - NL_ij / max_k NL_ik                                               (4)
    BS_i   = max(floor((K_i + MW_i + sum_j NCW_ij) / 3 x B), 1)                    (5)

The sums over k and j run from 1 to N and include j = i. The sum of all BS_i is not a fixed multiple
of B: the K sum to 1 and the MW to N - 1, but the NCW can sum to anything up to N (N - 1). They sum
to N if all nodes are equally far from each other (NL_ii = 0).
"""

import math
from dataclasses import dataclass

import numpy as np

from lotus.common.numbers.array_types import Floats


@dataclass(frozen=True)
class Orchestrated:
    """The quantities of each node (N,), and the resulting batch sizes."""

    k: Floats
    mw: Floats
    ncw: Floats  # of each node, summed over j
    sizes: tuple[int, ...]


def orchestrate(ops: Floats, memory: Floats, latency: Floats, base: float) -> Orchestrated:
    """Return the batch sizes of N nodes.

    `ops` (N,): operations per second. `memory` (N,): bytes in use. `latency` (N, N): NL_ij in any
    unit. `base`: the baseline batch size B. If all latencies of a node are 0, equation 4 would
    divide by 0; its weights are then 1, like those of the nearest node.
    """
    if not (ops > 0).all():
        raise ValueError("operations per second must be above 0")
    used = float(memory.sum())
    share = memory / used if used > 0 else np.full(len(ops), 1.0 / len(ops))
    k, mw = ops / ops.sum(), 1.0 - share
    farthest = latency.max(axis=1, keepdims=True)
    weights = 1.0 - np.divide(latency, farthest, out=np.zeros_like(latency), where=farthest > 0)
    ncw = weights.sum(axis=1)
    sizes = [max(math.floor(size), 1) for size in ((k + mw + ncw) / 3 * base).tolist()]
    return Orchestrated(k, mw, ncw, tuple(sizes))
