"""What one worker takes of memory, shared memory and descriptors, as a run or a trial measured it.

The guard multiplies it. Where a run tells less than is needed, the number here is the larger one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lotus.analysis.columns import integer, number
from lotus.analysis.scope import RunLike, iterated, scopes
from lotus.errors import LotusError

# A pickled handle of a shared tensor is 65 bytes and the first of a batch 330 (torch 2.2, 2.14).
_HANDLES = 4096


@dataclass(frozen=True)
class Costs:
    """Bytes of one loader's batches and workers.

    A batch reaches the main process as `shared_bytes` of tensors in shared memory and `pipe_bytes`
    written to a pipe (arrays, strings), both of the largest batch that was seen.
    """

    batch_bytes: int  # of tensors and arrays, the largest batch
    shared_bytes: int
    pipe_bytes: int
    worker_bytes: int  # that one worker more takes, batches apart
    main_bytes: int | None = None  # of the main process without workers; None: not known
    tensors: int | None = None  # shared tensors in a batch; None: not known
    batches: int | None = None  # of an epoch: no more can be in flight; None: not known
    start_method: str | None = None  # of the workers that were measured
    sharing: str = "file_descriptor"  # torch.multiprocessing's strategy

    def __post_init__(self) -> None:
        for name in ("batch_bytes", "shared_bytes", "pipe_bytes", "worker_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it cannot be negative")


def from_run(
    run: RunLike,
    loader: int | None = None,
    *,
    main_bytes: int | None = None,
    tensors: int | None = None,
) -> Costs:
    """The costs of one loader of a run (None: the one with most samples), over all its ranks.

    `worker_bytes` is the largest proportional set size of a worker, which counts a worker's part
    of the pages that it shares with others: too much with fork, never too little. Where the kernel
    tells none it is the resident set, which counts them whole. Bytes of a batch are those that the
    tracer counted: of 64 items at each level of nested lists. Raises LotusError where the run
    recorded no batch, or no worker's memory.
    """
    known = iterated(run)
    if loader is None and known:
        loader = known[0]
    if loader is None or loader not in known:
        what = "no loader was iterated" if not known else f"there is no loader {loader}"
        raise LotusError(f"{what} in the run; record one with: lotus trace -- python train.py")
    scope = scopes(run, [loader])[0]
    batch = _largest(number(scope.batches, "bytes"))
    if batch is None:
        raise LotusError("the run recorded no batch of the loader: its size is not known")
    sent = number(scope.batches, "send_bytes")
    pipe = _largest(sent)
    # Of a tensor a message holds the handle only, of an array all bytes.
    shared = min(batch, max(batch - (pipe or 0) + _HANDLES, 0))
    resources = scope.resources[integer(scope.resources, "worker") >= 0]
    pss, rss = number(resources, "pss"), number(resources, "rss")
    worker = _largest(pss[pss > 0])
    if worker is None:
        worker = _largest(rss)
    if worker is None:
        raise LotusError(
            "the run recorded no worker's memory: record one with num_workers=1 "
            "that lasts for more than a second"
        )
    settings = scope.settings
    return Costs(
        batch_bytes=batch,
        shared_bytes=shared,
        pipe_bytes=pipe or 0,
        worker_bytes=worker,
        main_bytes=main_bytes,
        tensors=tensors,
        batches=_count(settings.get("length")),
        start_method=_text(settings.get("start_method")),
    )


def private_bytes(pid: int, root: Path = Path("/")) -> int | None:
    """Memory that no other process has mapped, as the end of process `pid` would free it.

    The exact cost of a worker at this moment, with fork too; None where the kernel does not tell.
    """
    try:
        text = (root / f"proc/{pid}/smaps_rollup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = [line.split() for line in text.splitlines() if line.startswith("Private_")]
    sizes = [int(one[1]) * 1024 for one in found if len(one) == 3 and one[1].isdecimal()]
    return sum(sizes) if sizes else None


def _largest(values: Any) -> int | None:
    known = values[~np.isnan(values)]
    return int(known.max()) if len(known) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
