"""`lotus.span`: label a region of the traced program's own code.

Outside a trace entering and leaving cost a dictionary look-up each.
"""

import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


class span:
    """Time a region as an operation of this name, in a `with` statement or as a decorator.

    ::

        with lotus.span("decode"):
            image = decode(data)

        @lotus.span            # named after the function
        def augment(image): ...

        @lotus.span("resize")
        def f(image): ...

    Inside a sample it is one of the sample's operations; elsewhere it stands by itself.
    """

    def __new__(cls, name: Any) -> Any:
        if callable(name):
            return super().__new__(cls)._named(name.__name__)(name)
        return super().__new__(cls)

    def __init__(self, name: str) -> None:
        self._named(name)

    def _named(self, name: str) -> "span":
        self._name = name
        self._open: list[Any] = []
        return self

    def __enter__(self) -> "span":
        inside = sys.modules.get("_lotus_inside.trace.spans")
        self._open.append(None if inside is None else inside.begin(self._name))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = self._open.pop()
        if end is not None:
            end()

    def __call__(self, function: _Function) -> _Function:
        name = self._name

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            inside = sys.modules.get("_lotus_inside.trace.spans")
            end = None if inside is None else inside.begin(name)
            if end is None:
                return function(*args, **kwargs)
            try:
                return function(*args, **kwargs)
            finally:
                end()

        return call  # type: ignore[return-value]
