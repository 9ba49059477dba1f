"""What one worker takes of memory, shared memory and descriptors, as trials measured it.

The guard multiplies it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceCosts:
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
