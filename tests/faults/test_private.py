"""What lotus records is for its user alone, whatever the umask; pages and exports follow it."""

import os
import subprocess
import sys

from tests.faults.conftest import PROGRAMS, execute
from tests.launching import LOTUS, PYTHON, ROOT, SMALL_TORCH

FREE = ["sh", "-c", 'umask 0 && exec "$@"', "sh"]


def modes(folder):
    """Path -> mode of all that is there; a file's and a directory's."""
    permissions = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            if not os.path.islink(path):
                permissions[os.path.relpath(path, folder)] = os.lstat(path).st_mode & 0o7777
    return permissions


def private(folder):
    assert os.stat(folder).st_mode & 0o7777 == 0o700
    permissions = modes(folder)
    assert permissions
    for name, mode in permissions.items():
        wanted = 0o700 if os.path.isdir(os.path.join(folder, name)) else 0o600
        assert mode == wanted, (name, oct(mode))
    return set(permissions)


def test_a_run_is_private(torch, tmp_path):
    path = tmp_path / "R"
    program = [PYTHON, PROGRAMS / "meanwhile.py", "fork", "true"]
    words = [*FREE, *LOTUS, "trace", "-q", "-o", path, "--", *program]
    ended = execute(words, tmp_path, path, env=SMALL_TORCH)
    assert ended.code == 0
    assert {"run.json", "processes.jsonl", "events", "state"} <= private(path)


def test_a_default_directory_and_a_block_are_private(torch, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lotus\n"
        "from torch.utils.data import DataLoader\n"
        "with lotus.trace('B'): list(DataLoader([1, 2], 1, collate_fn=list))\n"
    )
    ended = execute([*FREE, PYTHON, "-c", code], tmp_path, tmp_path, env=SMALL_TORCH)
    assert ended.code == 0, ended.err
    private(tmp_path / "B")
    words = [*FREE, *LOTUS, "trace", "-q", "--", PYTHON, "-c", "import torch.utils.data"]
    assert execute(words, tmp_path, tmp_path, env=SMALL_TORCH).code == 0
    (made,) = (tmp_path / "lotus-runs").iterdir()
    private(made)


def test_a_sweep_is_private_with_all_that_it_keeps_of_the_output(torch, tmp_path):
    path = tmp_path / "S"
    program = [PYTHON, PROGRAMS / "meanwhile.py", "none", "true"]
    words = [*FREE, *LOTUS, "sweep", "-q", "--workers", "0", "--repeat", "1", "-o", path]
    ended = execute([*words, "--counters", "none", "--", *program], tmp_path, path)
    assert ended.code == 0, ended.err
    kept = private(path)
    assert "sweep.json" in kept
    assert any(name.endswith(".log") for name in kept)


def test_tuned_settings_are_private(tmp_path):
    code = (
        "import sys; from pathlib import Path; from lotus.settings import tuned_file\n"
        "from lotus.settings.space import Setting\n"
        "entry = tuned_file.Entry(tuned_file.Target(number=0), Setting(1))\n"
        "tuned_file.write(Path(sys.argv[1]), tuned_file.Tuned((entry,)))\n"
    )
    path = tmp_path / "tuned.json"
    words = [*FREE, sys.executable, "-c", code, str(path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(words, check=True, env=env)
    assert path.stat().st_mode & 0o7777 == 0o600
