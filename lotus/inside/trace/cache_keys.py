"""Keeps stand-ins out of the hashes by which other libraries identify cached results."""

from __future__ import annotations

from ..common.guard import edge, hook
from ..common.object_attributes import original_of
from .operation_stand_ins import give_back, is_stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .operation_stand_ins import StandIns
    from .recorder import Recorder


def save(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hook for `save` of Hugging Face's pickler, whose bytes are a data set's fingerprint."""

    def save(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if is_stand_in(obj):
            obj = original_of(obj)
        elif type(obj) is dict and is_stand_in(obj.get("forward")):  # attributes of a module
            obj = {name: value for name, value in obj.items() if name != "forward"}
        return original(self, obj, *args, **kwargs)

    return hook(save)


def set_transform_hash(
    original: Callable[..., Any], recorder: Recorder, stand_ins: StandIns
) -> Callable[..., Any]:
    """Hook for `set_transform_hash` of MONAI's PersistentDataset, which pickles transforms."""

    def set_transform_hash(self: Any, *args: Any, **kwargs: Any) -> Any:
        edge(recorder, _give_back, recorder, stand_ins)
        return original(self, *args, **kwargs)

    return hook(set_transform_hash)


def _give_back(recorder: Recorder, stand_ins: StandIns) -> None:
    if stand_ins and recorder.iterations:
        text = "operations are not timed up to the next epoch: MONAI made a hash of transforms"
        recorder.event({"event": "note", "text": text})
    give_back(stand_ins)
