"""Times training with a setting, to validate the result of trials."""

from __future__ import annotations

from ...apply import epoch_handover
from ..observation.observer import KEY
from .program_threads import ProgramThreads
from .timed_training import TimedTraining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..candidates.trial_requests import Train, TrainedBatches


class LiveValidation(TimedTraining):
    """Times the program's batches and steps after a setting was applied in the middle of an epoch.

    It does not count the batches that the iterator had in flight, the first batch after them, which
    includes the start of the workers, and `discard` more, which were made meanwhile.

    The setting's `torch_threads` are set when its iterator is made (apply/settings_applier.py), and
    put back here at the end, unless the program has set others meanwhile.
    """

    def __init__(
        self, loader: Any, iterator: Any, request: Train, torch_threads: int | None
    ) -> None:
        super().__init__(loader, iterator)
        self.begin(request.batches, request.discard, request.seconds)
        self._rest = iterator.__dict__[epoch_handover.KEY]
        self._threads = ProgramThreads(iterator, torch_threads)
        iterator.__dict__[KEY] = self

    def fetch_begins(self) -> None:
        """Notice a number of threads that the program has set itself."""
        self._threads.look()

    def counts(self, wait_s: float) -> bool:
        """Return whether the batch that was just received, after `wait_s`, is timed."""
        if self._rest.successor is None:
            return False
        if self.startup_s is None:
            self.startup_s = wait_s
            return False
        if self._discard:
            self._discard -= 1
            return False
        return True

    def reply(self) -> TrainedBatches:
        """Return the batches of complete steps."""
        self.refused = self._rest.refused
        return super().reply()

    def release_workers(self, begins: Any = None) -> None:
        """Put torch's threads back; no indices are withheld from the workers here."""
        self._threads.put_back()
