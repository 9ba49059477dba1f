"""Loaded by every Python process of the traced program: its folder is first on PYTHONPATH.

Installs the hooks, then runs the sitecustomize that it hides.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load(name: str) -> "types.ModuleType":
    """Import a module of lotus.inside under its private name."""
    import importlib.util

    if "_lotus_inside" in sys.modules:
        return importlib.import_module(f"_lotus_inside.{name}")
    inside = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        "_lotus_inside",
        os.path.join(inside, "__init__.py"),
        submodule_search_locations=[inside],
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{inside} is no folder of modules")
    sys.modules["_lotus_inside"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return importlib.import_module(f"_lotus_inside.{name}")


def _record() -> None:
    import json
    import time

    run = os.environ["LOTUS_RUN"]
    install = _load("install")
    line = {
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
        os.write(fd, (json.dumps(line) + "\n").encode())
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
    import importlib.machinery
    import importlib.util

    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
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
