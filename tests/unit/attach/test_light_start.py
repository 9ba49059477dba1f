"""That `lotus attach` looks at a program before it imports what only its report needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# It ends where `attach` begins to watch.
CODE = """
import shutil
import sys
from lotus import cli
from lotus.attach import observation
from lotus.attach.processes import process_discovery
from lotus.attach.stacks import stack_recorder
class Recorder:
    def __init__(self, *args):
        pass
    def kill(self):
        pass
def programs_of(pid, processes):
    return [process_discovery.Program(process_discovery.read_process(pid))]
def watch(*args):
    print("slow:", *sorted({'numpy', 'pandas', 'pyarrow', 'rich'} & {*sys.modules}))
    sys.exit(0)
process_discovery.programs_of = programs_of
observation.StackRecorder = observation.LocalsReader = Recorder
stack_recorder.find = lambda: ("py-spy", "")
shutil.which = lambda *args, **options: None  # no perf is started
observation._watch = watch
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("options", [[], ["--perf"]])
def test_nothing_that_is_slow_to_import_is_imported_before_the_first_look(
    options: list[str], tmp_path: Path
) -> None:
    words = [sys.executable, "-c", CODE, "attach", str(os.getpid()), *options]
    words += ["-o", str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["slow:"], done.stderr
