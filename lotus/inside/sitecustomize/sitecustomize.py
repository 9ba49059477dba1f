"""Loaded by every Python process of the traced program: its folder is first on PYTHONPATH.

Installs the hooks, then runs the sitecustomize that it hides. It imports nothing that Python has
not imported by then: that takes longer than all else here, and a program may have files of its own
with the names of such modules.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
# What `importlib` is made of, and `importlib.util` and `importlib.machinery` give access to.
_IMPORTS: "Any" = sys.modules["_frozen_importlib"]
_FILES: "Any" = sys.modules["_frozen_importlib_external"]


def _load(name: str) -> "types.ModuleType":
    """Import a module of lotus.inside under its private name."""
    if "_lotus_inside" not in sys.modules:
        inside = os.path.dirname(_HERE)
        spec = _FILES.spec_from_file_location(
            "_lotus_inside",
            os.path.join(inside, "__init__.py"),
            submodule_search_locations=[inside],
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{inside} is no folder of modules")
        sys.modules["_lotus_inside"] = module = _IMPORTS.module_from_spec(spec)
        spec.loader.exec_module(module)
    __import__(f"_lotus_inside.{name}")
    return sys.modules[f"_lotus_inside.{name}"]


def _json(value: "str | int | list[str]") -> str:
    """Return a value as the module `json` writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    if isinstance(value, int):
        return str(value)
    written = ""
    for character in value:
        number = ord(character)
        if 32 <= number < 127 and character not in '"\\':
            written += character
        elif number < 1 << 16:
            written += f"\\u{number:04x}"
        else:
            number -= 1 << 16
            written += f"\\u{0xD800 | number >> 10:04x}\\u{0xDC00 | number & 0x3FF:04x}"
    return f'"{written}"'


def _record() -> None:
    import time

    run = os.environ["LOTUS_RUN"]
    install = _load("install")
    line: dict[str, str | int | list[str]] = {
        "event": "python",
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "time_ns": time.monotonic_ns(),
        "executable": sys.executable,
        "argv": getattr(sys, "argv", sys.orig_argv)[:1],
        "python": sys.version.split()[0],
    }
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(os.path.join(run, "processes.jsonl"), flags, 0o600)
    try:
        items = ", ".join(f"{_json(name)}: {_json(value)}" for name, value in line.items())
        os.write(fd, f"{{{items}}}\n".encode())
    finally:
        os.close(fd)
    install.trace()


def _say(text: str) -> None:
    # Descriptor 2 still is what it was when Python started; if it is closed, the program may reuse
    # it. A process of multiprocessing has a parent that has reported this already.
    if sys.stderr is not None and not any("multiprocessing" in arg for arg in sys.orig_argv):
        try:  # noqa: SIM105 - contextlib is not imported by then
            os.write(2, text.encode("ascii", "backslashreplace"))
        except OSError:
            pass


def _run_hidden() -> None:
    """Run the sitecustomize that Python would have found without us."""
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = _FILES.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = _IMPORTS.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("LOTUS_SETTINGS"):
    try:
        _load("install").apply_settings()
    except Exception as _error:
        _say(f"lotus: the settings are not applied in process {os.getpid()}: {_error!r}\n")
if os.environ.get("LOTUS_TUNE"):
    try:
        _load("install").tune()
    except Exception as _error:
        _say(f"lotus: process {os.getpid()} cannot be tuned: {_error!r}\n")
if os.environ.get("LOTUS_RUN"):
    try:
        _record()
    except Exception as _error:
        if not os.environ.get("LOTUS_QUIET"):
            _say(f"lotus: tracing of process {os.getpid()} did not start: {_error!r}\n")
_run_hidden()
