"""Tells whether anything in a worker asks which of the workers it is.

A stream that is divided among workers by itself has to: torch's `WorkerInfo` has the number of the
worker, how many there are, and its seed. Until one of them is read, attributes of that class that
note it stand in place of the original ones.
"""

from __future__ import annotations

import sys

from ...common.guard import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES = ("id", "num_workers", "seed")
_originals: dict[str, Any] = {}  # while they are replaced
_asked = True  # unless it is watched


class _Noted:
    """An attribute of WorkerInfo that puts the original ones back when it is read."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, info: Any, owner: Any = None) -> Any:
        global _asked
        if info is not None:
            _asked = True
        _restore(self._owner)
        return getattr(owner if info is None else info, self._name)

    def __set__(self, info: Any, value: object) -> None:
        put = getattr(_originals.get(self._name), "__set__", None)
        if put is not None:
            put(info, value)
        else:
            info.__dict__[self._name] = value


def _restore(owner: Any) -> None:
    while _originals:
        name, original = _originals.popitem()
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def watch(prepared: bool) -> None:
    """Watch from now on; `prepared`: a worker_init_fn, which gets the number, may divide the data.

    It is called in a worker, before that has its WorkerInfo.
    """
    if not prepared:
        ask(_replace)


def _replace() -> None:
    global _asked
    owner: Any = sys.modules["torch.utils.data._utils.worker"].WorkerInfo
    own = dict(vars(owner))
    for name in _NAMES:
        _originals[name] = own.get(name)
        setattr(owner, name, _Noted(owner, name))
    _asked = False


def reads_worker_info() -> bool:
    """Return False if nothing has asked so far."""
    return _asked
