"""Reads and assigns the attributes of a loader that make up its setting."""

import sys

from ..common.loaders.loader_description import is_iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SIMPLE = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order")
_TORCH_PREFETCH = 2


class SettingRefusedError(Exception):
    """The reason why a setting is not applied to a loader, as a clause after "because"."""


def attributes(loader: "Any") -> "dict[str, Any]":
    """Return the current attributes of a loader, as `assign` takes them."""
    values = {name: getattr(loader, name) for name in _SIMPLE if hasattr(loader, name)}
    return {**values, "multiprocessing_context": loader.multiprocessing_context}


def resolve(entry: "dict[str, Any]", loader: "Any", before: "dict[str, Any]") -> "dict[str, Any]":
    """Return the attributes that a setting gives a loader. Raises SettingRefusedError.

    `entry` has the `setting` and `iterable_safe`: whether it is known to keep the samples of an
    iterable data set. With `keep`, attributes that the setting does not name stay. `before` is the
    result of `attributes`.
    """
    setting = entry["setting"]
    if entry.get("keep"):
        setting = {**{name: before[name] for name in _SIMPLE if name in before}, **setting}
    workers = setting["num_workers"]
    after = {**before, "num_workers": workers, "pin_memory": setting.get("pin_memory", False)}
    if is_iterable(loader) and workers != before["num_workers"] and not entry["iterable_safe"]:
        raise SettingRefusedError(
            f"its data set is iterable, so {workers} workers instead of {before['num_workers']} "
            "may repeat or lose samples, and it was not shown that they do not"
        )
    if not workers:
        if loader.timeout > 0:
            raise SettingRefusedError(
                f"a timeout ({loader.timeout} s) needs workers, and the setting has none"
            )
        after.update(prefetch_factor=None, persistent_workers=False, multiprocessing_context=None)
        return after
    after["prefetch_factor"] = setting.get("prefetch_factor") or _TORCH_PREFETCH
    after["persistent_workers"] = setting.get("persistent_workers", False)
    in_order = setting.get("in_order")
    if "in_order" in before and in_order is not None:
        after["in_order"] = in_order
    elif in_order is False:
        version = sys.modules["torch"].__version__
        raise SettingRefusedError(f"in_order=False came with torch 2.6, this is {version}")
    method = setting.get("start_method")
    if method is not None:
        multiprocessing: Any = sys.modules["multiprocessing"]
        if method not in multiprocessing.get_all_start_methods():
            raise SettingRefusedError(f"this platform cannot start processes by {method}")
        after["multiprocessing_context"] = method
    return after


def assign(loader: "Any", attributes: "dict[str, Any]") -> None:
    """Assign attributes to a loader."""
    # Bypass DataLoader.__setattr__, which rejects some of them after `__init__`.
    for name, value in attributes.items():  # the context last: it needs workers
        if name == "multiprocessing_context" and value is None:
            loader.__dict__["_DataLoader__multiprocessing_context"] = None
        else:
            object.__setattr__(loader, name, value)


def unwarned(make: "Callable[[Any], Any]") -> "Callable[[Any], Any]":
    """Wrap a function that makes an iterator: suppress the warning about too many workers.

    The program did not ask for these workers, and may turn warnings into errors.
    """
    from ..common.guard import hook

    def call(loader: "Any") -> "Any":
        vars(loader)["check_worker_number_rationality"] = bool
        try:
            return make(loader)
        finally:
            del vars(loader)["check_worker_number_rationality"]

    return hook(call)


def start_method(loader: "Any") -> str:
    """Return how workers will be started, without fixing the program's default."""
    multiprocessing: Any = sys.modules["multiprocessing"]
    context = loader.multiprocessing_context or multiprocessing
    method = context.get_start_method(allow_none=True)
    return str(method or multiprocessing.get_all_start_methods()[0])
