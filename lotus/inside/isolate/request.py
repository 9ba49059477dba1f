"""The configuration of isolated runs."""

from __future__ import annotations

import json


class IsolationRequest:
    """The configuration in LOTUS_ISOLATE, which is JSON."""

    def __init__(self, text: str) -> None:
        fields = json.loads(text)
        self.exchange: str = fields["exchange"]  # folder of the pipes `ready` and `go`
        self.samples: int = fields["samples"]
        self.runs: int = fields["runs"]
        self.needed: int = fields["needed"]  # calls that are needed to sample a short function
        self.gap_ns: int = fields["gap_ns"]
        self.budget_ns: int = fields["budget_ns"]  # for each operation
        # Folder of the alternatives to try (alternative_bench.py); None: operations are isolated.
        self.alternatives: str | None = fields.get("alternatives")
        # Their names, and operations that are not run again; None: all alternatives.
        self.names: list[str] | None = fields.get("names")
        self.skipped: list[str] = fields.get("skipped") or []
        # Folder in which cached samples are tried (cut_bench.py); None: they are not.
        self.cuts: str | None = fields.get("cuts")
        # Folders in which there may be caches of these samples already.
        self.roots: list[str] = fields.get("roots") or []
        # Whether samples are only looked at, and not timed.
        self.look_only: bool = fields.get("look_only") or False
        self.epochs: int = fields.get("epochs", 2)  # of which the accesses to samples are counted
        # By first `iter()`, or by its data set's class, place or name; None: the largest.
        self.loader: int | str | None = fields["loader"]
