"""A Python that has torch imported already, for tests that look at no start of a program.

`interpreter()` gives the path of an executable that is used as a `python`. It asks a server
(`server.py`), which has imported torch once, to fork a process that runs the program: a start of
0.05 s where torch takes 2. What differs from a real start: the process is a child of the server and
leads a session of its own, so what started it, and whoever sends it signals, sees the one that
asked (`client.py`); two frames of the server lie below the program's. So tests of launching,
signals, terminals, interpreters, perf, py-spy and processes take a real Python. Where an option or
a variable would change how Python itself starts, the client becomes a real Python.
"""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_folders: list[Path] = []


@functools.cache
def interpreter(python: str, *modules: str) -> str:
    """Return the path of an executable that runs programs as `python`, with modules imported.

    Absolute paths among the modules are folders in which those that follow are found.
    It starts its servers at their first use; they end with this process, and so do the programs
    that they run.
    """
    # A short path: that of a socket has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="lw-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _folders.append(folder)
    path = folder / "python"
    known = {
        "PYTHON": python,
        "FOLDER": str(folder),
        "LIMITS": Path("/proc/self/limits").read_text(),
        "SERVER": [str(_HERE / "server.py"), str(os.getpid()), *modules],
    }
    head = "".join(f"{name} = {value!r}\n" for name, value in known.items())
    # The first line of a script has one word, and not too long a one.
    (folder / "real").symlink_to(python)
    path.write_text(f"#!{folder}/real -SIE\n{head}{(_HERE / 'client.py').read_text()}")
    path.chmod(0o755)
    return str(path)


def processor_s() -> float:
    """Return the processor time, in seconds, of the servers of this process and their programs."""
    ticks = 0
    for folder in _folders:
        for path in folder.glob("*.pid"):
            try:
                fields = Path("/proc", path.read_text(), "stat").read_text().rpartition(")")[2]
            except OSError:  # it has ended
                continue
            ticks += sum(map(int, fields.split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
