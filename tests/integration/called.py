"""`lotus` in the test's own process, where neither its start nor its end is what is looked at."""

import contextlib
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

from lotus import cli

SILENT = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def called(*words: str | Path | float) -> subprocess.CompletedProcess[str]:
    """How a command of `lotus` ends and what it prints: into files, as into those of a process.

    A warning that Python shows a user is an error here.
    """
    variables = {name: text for name, text in os.environ.items() if name.startswith("LOTUS_")}
    argv = list(map(str, words))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in "oe"]
        stack.enter_context(contextlib.redirect_stdout(files[0]))
        stack.enter_context(contextlib.redirect_stderr(files[1]))
        stack.enter_context(warnings.catch_warnings())
        stack.callback(os.environ.update, variables)
        for name in variables:
            del os.environ[name]
        warnings.simplefilter("error")
        for kind in SILENT:
            warnings.simplefilter("ignore", kind)
        try:
            code = cli.main(argv)
        except SystemExit as end:  # of argparse
            code = end.code if isinstance(end.code, int) else 1
        outputs = []
        for file in files:
            file.flush()
            file.seek(0)
            outputs.append(file.read())
    return subprocess.CompletedProcess(argv, code, *outputs)
