"""A callback for transformers: `trainer.add_callback(LotusCallback(trainer))`.

At the end of each epoch `trainer.log` gets how long the training waited for data and why, and with
it every integration that the Trainer reports to; at the end the verdict is printed. Where the
training raises, which transformers tells no callback, it is printed when its process ends, also
one that multiprocessing forked. It costs what `lotus trace` costs, and records on the process of
world rank 0.
"""

import os
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

from lotus.common.terminal.stderr import say
from lotus.integrations.training_log import TrainingLog

if TYPE_CHECKING:
    TrainerCallback = object
else:
    from transformers import TrainerCallback


class LotusCallback(TrainerCallback):
    """`trainer`: whose `log` gets the values; without one only the verdict is printed.

    `directory`: where the run is kept (default: lotus-runs/SCRIPT-TIME); `level` as of `lotus
    trace`.
    """

    def __init__(
        self,
        trainer: Any = None,
        directory: str | os.PathLike[str] | None = None,
        level: str = "op",
    ) -> None:
        self._trainer = trainer
        self._log = TrainingLog(directory, level)
        self._end: Any = None  # prints once, not in forked children

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start recording before the first loader is iterated."""
        if state.is_world_process_zero:
            self._log.start()
            # atexit's functions do not run in a process that multiprocessing forked.
            self._end = Finalize(None, self._print, exitpriority=0)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Send the values of the epoch to the trainer."""
        values = self._log.epoch()
        if values and self._trainer is not None:
            self._trainer.log(values)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Print the verdict."""
        if self._end is not None:
            self._end()

    def _print(self) -> None:
        for line in self._log.finish():
            say(line)
