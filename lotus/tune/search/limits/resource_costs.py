"""The measured costs of one worker and one batch, from which the memory guard predicts needs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceCosts:
    """Bytes of one loader's batches and workers. Raises ValueError for negative values.

    A batch reaches the main process as `shared_bytes` of tensors in shared memory and `pipe_bytes`
    of data in a pipe (arrays, strings). Both are those of the largest batch observed.
    """

    batch_bytes: int  # tensors and arrays of the largest batch
    shared_bytes: int
    pipe_bytes: int
    worker_bytes: int  # memory that each further worker needs, without batches
    main_bytes: int | None = None  # of the main process without workers; None: not known
    tensors: int | None = None  # shared tensors per batch; None: not known
    batches: int | None = None  # per epoch, which limits those in flight; None: not known
    start_method: str | None = None  # of the measured workers
    sharing: str = "file_descriptor"  # torch.multiprocessing's strategy

    def __post_init__(self) -> None:
        for name in ("batch_bytes", "shared_bytes", "pipe_bytes", "worker_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it cannot be negative")
