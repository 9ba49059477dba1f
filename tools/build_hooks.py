"""Builds the optional hooks in C (the C files in lotus/inside/trace/native) for this Python.

    python tools/build_hooks.py [FOLDER]

hatchling runs it for each wheel and each editable installation (pyproject.toml). Where there is no
compiler, or the file does not compile, there is one line on stderr and the hooks are those in
Python; no installation fails. `LOTUS_BUILD_HOOKS=0` leaves them out on purpose, `=1` fails without
them. `CC` and `CFLAGS` are those of the compiler.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "lotus" / "inside" / "trace" / "native"
NAME, VARIABLE = "_hooks", "LOTUS_BUILD_HOOKS"
SOURCES = ("_hooks.c", "_buffer.c", "_samples.c", "_batch.c")
# Without Python's own assertions, as Python builds its modules: each names the path of the file.
FLAGS = ["-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden"]


def build(folder: Path = FOLDER) -> Path:
    """Compile the hooks of a folder; return the module beside it. Raises OSError."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if not suffix:
        raise OSError("this Python names no extensions by its ABI")
    compilers = [os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc"]
    words = [shlex.split(compiler) for compiler in compilers if compiler]
    there = [command for command in words if shutil.which(command[0])]
    if not there:
        raise OSError(f"there is no compiler {words[0][0]}")
    target = folder / f"{NAME}{suffix}"
    part = folder / f"{NAME}{suffix}.{os.getpid()}"
    command = [*there[0], *FLAGS, *shlex.split(os.environ.get("CFLAGS", ""))]
    command += [f"-I{sysconfig.get_path('include')}", f"-I{sysconfig.get_path('platinclude')}"]
    command += [*(str(folder / source) for source in SOURCES), "-o", str(part)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            lines = [line for line in ended.stderr.splitlines() if "error" in line]
            raise OSError((lines or ["the compiler failed"])[0])
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def build_if_possible(folder: Path = FOLDER) -> Path | None:
    """As `build`; None, and one line on stderr, where it cannot be built."""
    wish = os.environ.get(VARIABLE)
    if wish == "0":
        return None
    try:
        return build(folder)
    except Exception as error:  # also variables that are not to be read, odd bytes of a compiler
        if wish == "1":
            raise
        print(
            f"lotus: the hooks in C are not built ({error}); those in Python do the same",
            file=sys.stderr,
        )
        return None


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class HooksInC(BuildHookInterface):  # type: ignore[misc, type-arg]
        """Adds the module to a wheel, which is then of one Python and one platform."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            root = Path(self.root)
            built = build_if_possible(root / FOLDER.relative_to(FOLDER.parents[3]))
            if built is not None and version != "editable":
                build_data["artifacts"].append(f"/{built.relative_to(root)}")
                build_data["pure_python"], build_data["infer_tag"] = False, True


if __name__ == "__main__":
    found = build_if_possible(*map(Path, sys.argv[1:2]))
    if found is not None:
        print(found)
