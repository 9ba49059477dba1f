"""The functions that a call runs."""

import gc
import sys
from collections.abc import Callable


def called(function: Callable[..., object], *args: object, built_in: bool = False) -> list[str]:
    """The names of the Python functions that run until `function` returns, itself included.

    `built_in`: and of built-in functions. No garbage is collected meanwhile: Hypothesis, among
    others, has a function called at every collection, whichever code runs then.
    """
    names: list[str] = []

    def profile(frame: object, event: str, arg: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)  # type: ignore[attr-defined]
        elif event == "c_call" and built_in and arg is not sys.setprofile:
            names.append(arg.__name__)  # type: ignore[attr-defined]

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(profile)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return names
