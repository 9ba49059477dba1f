"""A program run by a warm Python (tests/warm) finds and gives what it would with a real one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import warm

MODULES = ("package", "package.late")


@pytest.fixture(autouse=True)
def no_variables_of_python(monkeypatch):
    """With one a real Python would run."""
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A package that prints when it is really imported."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text(
        "import sys\nprint('imported', file=sys.stderr)\nfrom . import early\nimport decimal\n"
    )
    (folder / "package" / "early.py").write_text(
        "import sys, types\nsys.modules['made_up'] = types.ModuleType('made_up')\nnumber = 3\n"
    )
    (folder / "package" / "late.py").write_text("number = 4\n")
    return folder


@pytest.fixture(scope="module")
def pythons(folder):
    """The path of a Python that has the package imported already, and of one that has not."""
    return {
        "warm": warm.interpreter(sys.executable, str(folder), *MODULES),
        "real": sys.executable,
    }


def run(python, folder, program, *words, **kwargs):
    kwargs = {"cwd": folder, "capture_output": True, "text": True, **kwargs}
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **kwargs.pop("env", {})}
    path = folder / "program.py"
    path.write_text(program)
    return subprocess.run([python, str(path), *words], env=env, **kwargs)


def both(pythons, folder, program, *words, **kwargs):
    """What the program did with each Python, without what the package says as it is imported."""
    seen = []
    for name in ("real", "warm"):
        ended = run(pythons[name], folder, program, *words, **kwargs)
        err = ended.stderr.replace("imported\n", "")
        seen.append((ended.returncode, ended.stdout, err))
    return seen


def test_what_a_program_finds(pythons, folder):
    program = (
        "import os, sys, signal, json\n"
        "print(sys.argv, sys.orig_argv[1:], sys.path, sys.executable, __file__, __name__)\n"
        "print(__spec__, __builtins__, __cached__, sorted(globals()), os.getcwd())\n"
        "print(sorted(os.environ.items()), [signal.getsignal(n) for n in (1, 2, 13, 15)])\n"
        "print('package' in sys.modules, 'decimal' in sys.modules, sys.flags)\n"
        "print(sys.stdout.line_buffering, sys.stderr.errors, sys.stdin.read())\n"
        "print(sorted(os.listdir('/proc/self/fd'))[:3], oct(os.umask(0)))\n"
    )
    real, warmed = both(pythons, folder, program, "a b", "ü", input="given\n", env={"X": "ä"})
    assert warmed[1].splitlines() == real[1].splitlines()
    assert warmed == real
    assert real[0] == 0


def test_modules_come_as_they_are_imported(pythons, folder):
    program = (
        "import sys\n"
        "class Notes:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        print('looks for', name)\n"
        "sys.meta_path.insert(0, Notes())\n"
        "import importlib.util\n"
        "assert importlib.util.find_spec('package')\n"
        "import package\n"
        "assert sys.modules['made_up'] and package.early.number == 3\n"
        "print(hasattr(package, 'late'))\n"
        "import package.late\n"
        "print(package.late.number, package.late.__spec__.origin, package.__spec__.loader)\n"
    )
    real, warmed = (run(pythons[name], folder, program) for name in ("real", "warm"))
    # THEN other finders see each import of what the program imports, in its order
    looked = [line for line in real.stdout.splitlines() if "package" in line]
    assert [line for line in warmed.stdout.splitlines() if "package" in line and "0x" not in line]
    names = [line for line in looked if line.startswith("looks for")]
    assert [n for n in warmed.stdout.splitlines() if n.startswith("looks for package")] == names
    assert (real.stderr, warmed.stderr) == ("imported\n", "")
    assert (real.returncode, warmed.returncode) == (0, 0)


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(7)",
        "raise SystemExit('said')",
        "import os; os._exit(3)",
        "def f():\n    1 / 0\nf()",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import atexit; atexit.register(print, 'last'); print('first')",
        "import threading; threading.Timer(0.05, lambda: print('later')).start()",
        "syntax error",
        "import sys\nsys.excepthook = lambda *e: print('hooked', e[0])\n1 / 0",
        "import sitecustomize; print(sitecustomize.SEEN)",
    ],
)
def test_how_a_program_ends(pythons, folder, program):
    (folder / "sitecustomize.py").write_text("import sys\nSEEN = (sys.argv[1:], sys.path[0])\n")
    real, warmed = both(pythons, folder, program)
    assert warmed == real


def test_options_and_variables_of_python_get_a_real_one(pythons, folder):
    program = "import os, sys; print(sys.flags, os.environ.get('PYTHONHASHSEED'))"
    for name in ("real", "warm"):
        ended = run(pythons[name], folder, program, env={"PYTHONHASHSEED": "5"})
        assert ended.stdout.endswith(" 5\n")
    words = [pythons["warm"], "-O", "-c", "import sys; print(sys.flags.optimize)"]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "1\n"


def test_a_program_with_a_module_of_its_own_gets_that(pythons, folder, tmp_path):
    (tmp_path / "package.py").write_text("number = 5\n")
    env = {"PYTHONPATH": str(tmp_path)}
    real, warmed = both(pythons, folder, "import package; print(package.__file__)", env=env)
    assert warmed == real
    (folder / "decimal.py").write_text("number = 6\n")  # beside the program
    real, warmed = both(pythons, folder, "import decimal; print(decimal.number)", env=env)
    (folder / "decimal.py").unlink()
    assert warmed == real == (0, "6\n", "")


def test_signals_reach_the_program_and_its_end_its_starter(pythons, folder):
    path = folder / "waits.py"
    path.write_text(
        "import json, os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'heard\\n'))\n"
        "assert sys._warm\n"
        "print(os.getpid(), flush=True)\n"
        "while True:\n    time.sleep(0.01)\n"
    )
    program = subprocess.Popen([pythons["warm"], str(path)], stdout=subprocess.PIPE, text=True)
    pid = int(program.stdout.readline())
    program.send_signal(signal.SIGUSR1)
    assert program.stdout.readline() == "heard\n"
    # WHEN the one that was started is killed
    program.kill()
    # THEN the program has ended as well
    assert program.stdout.read() == ""
    assert program.wait() == -signal.SIGKILL
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    # AND it dies of the signals that it does not take
    program = subprocess.Popen([pythons["warm"], str(path)], stdout=subprocess.PIPE, text=True)
    program.stdout.readline()
    program.terminate()
    assert program.wait() == -signal.SIGTERM
    program.stdout.close()


def test_servers_end_with_their_owner(folder):
    program = (
        "import json, subprocess, sys\n"
        "from tests import warm\n"
        "python = warm.interpreter(sys.executable, 'decimal')\n"
        "print(python, flush=True)\n"
        "subprocess.run([python, '-c', 'import os, sys; print(os.getppid(), sys._warm)'])\n"
        "assert warm.processor_s() >= 0\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    root = Path(__file__).parents[3]
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, cwd=root, capture_output=True, text=True)
    python, server, _ = ended.stdout.split()
    while Path(f"/proc/{server}").exists():
        time.sleep(0.01)
    assert not Path(python).parent.exists()
