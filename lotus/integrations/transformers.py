"""A callback for transformers: `trainer.add_callback(LotusCallback(trainer))`.

At the end of each epoch `trainer.log` gets how long the training waited for data and why, and with
it every integration that the Trainer reports to; at the end the verdict is printed. Where the
training raises, which transformers tells no callback, it is printed when the program ends. It costs
what `lotus trace` costs, and records on the process of world rank 0.
"""

import atexit
import os
from typing import TYPE_CHECKING, Any

from lotus.common.stderr import say
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
        self._pid = os.getpid()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start recording before the first loader is iterated."""
        if state.is_world_process_zero:
            self._log.start()
            self._pid = os.getpid()
            atexit.register(self._end)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Send the values of the epoch to the trainer."""
        values = self._log.epoch()
        if values and self._trainer is not None:
            self._trainer.log(values)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Print the verdict."""
        self._end()

    def _end(self) -> None:
        atexit.unregister(self._end)
        if os.getpid() != self._pid:  # a child that was forked meanwhile
            return
        for line in self._log.finish():
            say(line)
