"""What libraries do with the batches of an iteration: a trial before training, taking ahead."""

from __future__ import annotations

from ..common.objects import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.")
_MOST_AHEAD = 1_000_000


def consumer(loader: Any, frame: FrameType | None) -> dict[str, object]:
    """What is special about who iterates the loader, from `frame` on outwards; often nothing.

    `sanity`: its batches are of Lightning's sanity check, before training. `ahead`: that many
    batches are taken before the program gets the first, and are not used where it leaves early.
    """
    facts: dict[str, object] = {}
    while frame is not None:
        name, code = frame.f_globals.get("__name__"), frame.f_code
        if type(name) is not str:
            pass
        elif name == "accelerate.data_loader":
            # Of its iterators those that look for the end one batch before it.
            if code.co_name == "__iter__" and "next_batch" in code.co_varnames:
                facts.setdefault("ahead", 1)
        elif name.startswith(_LIGHTNING):
            if code.co_name == "_run_sanity_check":
                facts["sanity"] = True
            elif code.co_name == "__iter__" and name.endswith(".fetchers"):
                ahead = _ahead_of(frame.f_locals.get("self"), loader)
                if ahead:
                    facts.setdefault("ahead", ahead)
        frame = frame.f_back
    return facts


def _ahead_of(fetcher: object, loader: Any) -> int:
    """How many batches Lightning's fetcher takes ahead: none of a loader that tells its length."""
    ahead = attributes(fetcher).get("prefetch_batches")
    if type(ahead) is not int or not 0 < ahead < _MOST_AHEAD or _tells_length(loader):
        return 0
    return ahead


def _tells_length(loader: Any) -> bool:
    held = attributes(loader)
    if held.get("_dataset_kind") == 1:
        return hasattr(type(held.get("dataset")), "__len__")
    batches = held.get("batch_sampler")
    chosen = held.get("sampler") if batches is None else batches
    inner = attributes(chosen).get("sampler", chosen)
    return hasattr(type(chosen), "__len__") and hasattr(type(inner), "__len__")
