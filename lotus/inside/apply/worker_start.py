"""Settings that a loader's worker applies as it starts."""

import sys
from contextlib import suppress

from ..common.loaders.worker_threads import fix_threads
from ..common.process_identity import is_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..cache.cached_samples import CachePlan
    from .changed_transforms import AlternativePlan


class WorkerInit:
    """Replaces a loader's `worker_init_fn` while its workers start.

    It fixes their threads, if `threads` is not None, what is cached of their samples, and which
    alternatives make them. `__call__` is a property: it returns the user's function, which Python
    then calls. So the user's function has no frame of ours above it.
    """

    def __init__(
        self,
        threads: "int | None",
        function: "Callable[[int], object] | None",
        plan: "CachePlan | None" = None,
        alternatives: "AlternativePlan | None" = None,
    ) -> None:
        self.threads, self.function, self.plan = threads, function, plan
        self.alternatives = alternatives

    @property
    def __call__(self) -> "Callable[[int], object]":
        if is_worker():
            with suppress(Exception):
                self._set()
        return self.function if self.function is not None else bool

    def _set(self) -> None:
        if self.threads is not None:
            fix_threads(self.threads)
        if self.plan is not None:
            from . import sample_caching

            if sample_caching.active is not None:
                worker = sys.modules["torch.utils.data"].get_worker_info()
                program = self.function is not None
                sample_caching.active.pending = (worker.dataset, self.plan, program)
        if self.alternatives is not None:
            from . import changed_transforms

            if changed_transforms.active is not None:
                worker = sys.modules["torch.utils.data"].get_worker_info()
                changed_transforms.active.pending = (worker.dataset, self.alternatives)
