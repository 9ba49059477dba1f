"""Where lotus is not at home: other environments, names in the way, Pythons that hide from it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import PROGRAMS, PYTHON
from tests.launching import SMALL_TORCH

OWN = ("_lotus_inside", "sitecustomize")
PLAIN = PROGRAMS / "plain.py"
NUMBERS = PROGRAMS / "plain_numbers.py"  # for what has nothing to do with torch: see SMALL_TORCH


def test_lotus_is_not_needed_in_the_traced_environment(tmp_path, trace_command, torch):
    # GIVEN a Python of its own that sees torch and nothing else of this environment
    subprocess.run(
        [PYTHON, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, cwd=tmp_path
    )
    python = tmp_path / "venv" / "bin" / "python"
    packages = subprocess.run(
        [PYTHON, "-c", "import importlib.util as i; print(i.find_spec('torch').origin)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout.strip()
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    for entry in Path(packages).parents[1].iterdir():
        if "lotus" not in entry.name:
            (site / entry.name).symlink_to(entry)
    script = tmp_path / "script.py"
    script.write_text(
        "try:\n    import lotus\n    print('lotus is here')\nexcept ImportError:\n    pass\n"
        + PLAIN.read_text()
    )
    # WHEN a script is traced there
    got = trace_command(python, script)
    # THEN everything is recorded
    assert (got.code, got.out, got.err) == (0, b"12288.0\n", b"")
    assert len(got.run.ops) == 128


def test_a_package_called_lotus_of_the_users_own(tmp_path, trace_command, torch):
    # GIVEN a package with our name beside the user's script, which has a worker, then none
    (tmp_path / "lotus").mkdir()
    (tmp_path / "lotus" / "__init__.py").write_text("FLOWER = 'white'\n")
    script = tmp_path / "script.py"
    again = "    print(sum(float(batch.sum()) for batch in DataLoader(Data(), batch_size=8)))\n"
    script.write_text(f"import lotus\nprint(lotus.FLOWER)\n{PLAIN.read_text()}{again}")
    # WHEN it is traced
    got = trace_command(PYTHON, script, "1")
    # THEN the user gets the user's, and the run is recorded
    assert (got.code, got.out, got.err) == (0, b"white\n12288.0\n12288.0\n", b"")
    assert got.run.ops.groupby("loader").size().tolist() == [128, 128]


def test_the_sitecustomize_that_ours_hides_is_run(tmp_path, trace_command):
    # GIVEN a sitecustomize of the user's own on the path
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins\nbuiltins.from_sitecustomize = __file__\n"
    )
    code = (
        "import torch.utils.data, sitecustomize; print(from_sitecustomize, sitecustomize.__file__)"
    )
    # WHEN a Python is traced
    places = os.pathsep.join([str(tmp_path), *SMALL_TORCH.values()])
    got = trace_command(PYTHON, "-c", code, env={"PYTHONPATH": places})
    # THEN both ran
    expected = str(tmp_path / "sitecustomize.py")
    assert (got.code, got.out.decode().split(), got.err) == (0, [expected, expected], b"")
    assert got.run.processes["torch"].notna().all()


def test_a_file_with_the_name_of_a_module_that_only_lotus_needs(tmp_path, trace_command):
    # GIVEN beside the script a module that the standard library has too, but torch does not import
    (tmp_path / "resource.py").write_text("print('imported')\nunit = 'GB'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\n"
        "from torch.utils.data import DataLoader\n"
        "print(sum(len(batch) for batch in DataLoader(range(6), batch_size=3)))\n"
        "print('resource' in sys.modules)\n"
        "import resource\n"
        "print(resource.unit)\n"
    )
    # WHEN it is traced
    got = trace_command(PYTHON, script, env=SMALL_TORCH)
    # THEN it alone imports its module, when it says, and it is recorded
    assert got.out.decode().split() == ["6", "False", "imported", "GB"]
    assert (got.code, got.err) == (0, b"")
    assert len(got.run.waits) == 2


def test_a_python_without_torch_has_the_modules_that_it_has_without_lotus(tmp_path, trace_command):
    # GIVEN a Python that starts with an argument that is no ASCII
    code = "import sys; print(*sorted(sys.modules))"
    words = [PYTHON, "-c", code]
    plain = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    # WHEN it is traced
    got = trace_command(*words)
    # THEN only what is built in, and what is lotus's own, is imported beside
    beside = {name for name in got.out.decode().split() if name.partition(".")[0] not in OWN}
    assert beside - set(plain) <= {"atexit"}
    assert (got.code, got.err) == (0, b"")
    # AND names of any characters are written as they are
    script = tmp_path / 'a"\\ä\U0001f40d\n.py'
    script.write_text("")
    got = trace_command(PYTHON, script)
    [line] = (json.loads(line) for line in (got.path / "processes.jsonl").read_text().splitlines())
    assert line["argv"] == [str(script)]


def test_a_recorder_that_cannot_be_made_says_why(tmp_path, trace_command):
    # GIVEN a program without a module that lotus needs
    code = (
        "import sys; sys.modules['mmap'] = None\n"
        "from torch.utils.data import DataLoader\n"
        "print(list(DataLoader(range(2))))"
    )
    # WHEN it iterates a loader
    got = trace_command(PYTHON, "-c", code, options=(), env=SMALL_TORCH)
    # THEN it does so, and the end says why there is no record of it
    assert (got.code, got.out) == (0, b"[[0], [1]]\n")
    assert b"recording was switched off: ModuleNotFoundError: import of mmap halted" in got.err


def test_lotus_takes_no_module_of_the_users_for_one_of_the_standard_library(
    tmp_path, trace_command
):
    # GIVEN a folder on PYTHONPATH with modules that have names of those that lotus imports
    for name in ("resource", "shlex", "mmap", "statistics"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')\n")
    # WHEN a program is traced
    code = "print('runs')"
    got = trace_command(PYTHON, "-c", code, options=(), env={"PYTHONPATH": str(tmp_path)})
    # THEN lotus imports its own
    assert (got.code, got.out) == (0, b"runs\n")
    assert b"a module of the user" not in got.err


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_hides_is_named(trace_command, flag):
    got = trace_command(PYTHON, flag, "-c", "print(1)", options=())
    assert (got.code, got.out) == (0, b"1\n")
    assert b"no Python process reported" in got.err
    assert flag.encode() in got.err


def test_a_command_without_python(trace_command):
    got = trace_command("sh", "-c", "echo hi; exit 3", options=())
    assert (got.code, got.out) == (3, b"hi\n")
    assert b"ended with code 3" in got.err
    assert b"no Python process reported" in got.err


def test_python_without_torch(trace_command):
    got = trace_command(PYTHON, "-c", "print(1)", options=())
    assert (got.code, got.out) == (0, b"1\n")
    assert b"never imported torch.utils.data" in got.err


def test_torch_without_a_loader(trace_command):
    code = "import torch.utils.data; torch.utils.data.DataLoader([1, 2])"
    got = trace_command(PYTHON, "-c", code, options=(), env=SMALL_TORCH)
    assert (got.code, got.out) == (0, b"")
    assert b"no DataLoader was iterated" in got.err


def test_a_shell_script_that_starts_python(tmp_path, trace_command):
    # GIVEN a script that sets the environment up and starts the training in the background
    script = tmp_path / "train.sh"
    script.write_text(
        f'export PYTHONPATH=src:$PYTHONPATH\n"{PYTHON}" "{NUMBERS}" &\nwait $!\nexit 7\n'
    )
    got = trace_command("bash", script, env=SMALL_TORCH)
    assert (got.code, got.out, got.err) == (7, b"4096.0\n", b"")
    assert len(got.run.ops) == 128


def test_module_and_code_directly_after_the_dashes(tmp_path, trace_command):
    (tmp_path / "train.py").write_text(NUMBERS.read_text())
    (tmp_path / PLAIN.name).write_text(PLAIN.read_text())  # which it imports
    # The python on PATH is the one that runs them.
    env = {**SMALL_TORCH, "PATH": os.pathsep.join([os.path.dirname(PYTHON), os.environ["PATH"]])}
    got = trace_command("-m", "train", env=env, cwd=tmp_path)
    assert (got.code, got.out, got.err) == (0, b"4096.0\n", b"")
    assert len(got.run.ops) == 128
    assert trace_command("-c", "import sys; sys.exit(5)", env=env).code == 5


def test_a_loader_with_its_own_worker_loop_is_named(tmp_path, trace_command):
    # GIVEN torchdata's stateful loader, which does not go through torch's
    package = tmp_path / "torchdata" / "stateful_dataloader"
    package.mkdir(parents=True)
    (tmp_path / "torchdata" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "stateful_dataloader.py").write_text(
        "class StatefulDataLoader:\n"
        "    def __init__(self, data):\n        self.data = data\n"
        "    def __iter__(self):\n        return iter(self.data)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import torch.utils.data\n"
        "from torchdata.stateful_dataloader.stateful_dataloader import StatefulDataLoader\n"
        "loader = StatefulDataLoader([1, 2])\nprint(list(loader), list(loader))\n"
    )
    got = trace_command(PYTHON, script, options=(), env=SMALL_TORCH)
    # THEN it is named as not seen, once
    assert (got.code, got.out) == (0, b"[1, 2] [1, 2]\n")
    what = "torchdata.stateful_dataloader.stateful_dataloader.StatefulDataLoader"
    assert [loader["what"] for loader in got.run.unseen] == [what]
    assert got.err.decode().count(what) == 1


def test_nothing_of_lotus_is_imported_beside_its_inside(trace_command, torch):
    code = (
        "import sys, torch.utils.data\n"
        "print(*sorted(name for name in sys.modules if 'lotus' in name))\n"
    )
    got = trace_command(PYTHON, "-c", code)
    names = got.out.decode().split()
    assert names
    assert all(name.split(".")[0] == "_lotus_inside" for name in names)
