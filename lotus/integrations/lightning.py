"""A callback for Lightning: `Trainer(callbacks=[LotusCallback()])`.

At the end of each training epoch the trainer's own loggers (TensorBoard, W&B, MLflow, CSV) get how
long it waited for data and why; at the end of the fit the verdict is printed. It costs what `lotus
trace` costs, and records on the process of global rank 0.
"""

import os
from typing import TYPE_CHECKING, Any

from lotus.common.terminal.stderr import say
from lotus.integrations.training_log import TrainingLog

if TYPE_CHECKING:
    Callback = object
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:  # the package has two names
        from pytorch_lightning import Callback


class LotusCallback(Callback):
    """`directory`: where the run is kept (default: lotus-runs/SCRIPT-TIME); `level` as of `lotus
    trace`."""

    def __init__(self, directory: str | os.PathLike[str] | None = None, level: str = "op") -> None:
        super().__init__()
        self._log = TrainingLog(directory, level)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Start recording before the first loader is iterated."""
        if stage == "fit" and trainer.is_global_zero:
            self._log.start()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Send the values of the epoch to the loggers."""
        values = self._log.epoch()
        if values:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Print the verdict on what was recorded; the fit ends with its error."""
        self._end()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Print the verdict."""
        self._end()

    def _end(self) -> None:
        for line in self._log.finish():
            say(line)
