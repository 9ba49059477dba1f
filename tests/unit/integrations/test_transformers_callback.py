"""When the callback of transformers prints its verdict; transformers itself is a stand-in."""

import subprocess
import sys
from pathlib import Path

import pytest

_STAND_IN = """\
class TrainerCallback:
    pass
"""
_PROGRAM = """\
import multiprocessing
import os
import sys
from types import SimpleNamespace

from lotus.integrations import transformers


class Log:
    lines = ["the verdict"]

    def __init__(self, directory, level):
        pass

    def start(self):
        pass

    def finish(self):
        lines, self.lines = self.lines, []
        return lines


def train(how):
    transformers.TrainingLog = Log
    callback = transformers.LotusCallback()
    callback.on_train_begin(None, SimpleNamespace(is_world_process_zero=True), None)
    if os.fork() == 0:  # as a library may: it ends as a program does
        sys.exit()
    os.wait()
    if how == "fails":
        raise ValueError("mine")
    callback.on_train_end(None, None, None)


if __name__ == "__main__":
    method, how = sys.argv[1:]
    if method == "none":
        train(how)
        sys.exit()
    process = multiprocessing.get_context(method).Process(target=train, args=(how,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("how", ["ends", "fails"])
@pytest.mark.parametrize("method", ["none", "fork", "spawn"])
def test_the_verdict_is_printed_once_in_the_process_that_trained(
    tmp_path: Path, method: str, how: str
) -> None:
    (tmp_path / "transformers.py").write_text(_STAND_IN)
    (tmp_path / "train.py").write_text(_PROGRAM)
    ended = subprocess.run(
        [sys.executable, "train.py", method, how], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.stderr.count("the verdict") == 1
    assert ended.returncode == (how == "fails")
    assert ("ValueError: mine" in ended.stderr) == (how == "fails")
