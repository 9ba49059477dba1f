"""How tests start lotus and programs in processes of their own."""

import os
import sys
from pathlib import Path

import lotus

ROOT = Path(lotus.__file__).resolve().parents[1]
PYTHON = os.environ.get("LOTUS_TEST_PYTHON") or sys.executable
# `lotus` by its source, so that nothing of lotus is on the path of the traced program.
LOTUS = [
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lotus.cli import main; sys.exit(main())",
]
# The environment in which a program finds the stand-in for torch, which starts at once: where what
# is looked at has nothing to do with torch.
SMALL_TORCH = {"PYTHONPATH": str(ROOT / "tests" / "compat" / "programs" / "small_torch")}
# A program that refuses a system call by its number with an errno from here on, as a container's
# seccomp profile does, then executes what follows; it exits with 77 if the kernel takes no filter.
SECCOMP = """
import ctypes, os, struct, sys
call, code = int(sys.argv.pop(1)), int(sys.argv.pop(1))
program = b"".join(struct.pack("HBBI", *row) for row in (
    (0x20, 0, 0, 0), (0x15, 0, 1, call), (6, 0, 0, 0x00050000 | code), (6, 0, 0, 0x7FFF0000)))
text = ctypes.create_string_buffer(program)
argument = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, argument, 0, 0):
    sys.exit(77)
os.execvp(sys.argv[1], sys.argv[1:])
"""
