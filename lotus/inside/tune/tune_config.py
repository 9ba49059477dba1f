"""The configuration of `lotus tune` in the program: LOTUS_TUNE, and the process's place in its job.

LOTUS_TUNE is JSON with `exchange` (see exchange.py), `loader` (the number of the loader to tune by
first iteration, its name, or null for the largest), `watch` (batches to observe; null: the usual
number), `apply` (whether the program goes on afterwards) and `record` (environment under which the
trials are recorded; empty: they are not).
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from .pausing import number_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_RANKS = ("LOCAL_RANK", "RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


class TuneConfig:
    """What LOTUS_TUNE asks for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        fields: dict[str, Any] = json.loads(environ["LOTUS_TUNE"])
        self.environ = environ
        self.exchange: str = fields["exchange"]
        self.loader: int | str | None = fields["loader"]
        self.batches: int | None = fields["watch"]
        self.apply: bool = fields["apply"]
        self.record: dict[str, str] = fields.get("record") or {}

    def ranks(self) -> int:
        """The number of ranks of the job."""
        distributed: Any = sys.modules.get("torch.distributed")
        with suppress(Exception):
            if distributed is not None and distributed.is_initialized():
                return int(distributed.get_world_size())
        return number_in(self.environ, _WORLDS) or 1

    def local_rank(self) -> int | None:
        """The process's rank on its machine; None where no launcher sets it."""
        return number_in(self.environ, _RANKS)

    def without_lotus(self) -> dict[str, Any]:
        """How the program goes on where lotus has gone, or failed."""
        return {"do": "leave"} if self.apply else {"do": "end", "code": 1}
