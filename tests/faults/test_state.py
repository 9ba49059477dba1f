"""The state page where the kernel does not give one: the log goes on without."""

import errno
import os
import sys

import pytest

from tests.faults.conftest import PROGRAMS, SPEAKING, UNDISTURBED, execute
from tests.launching import LOTUS, PYTHON, SECCOMP, SMALL_TORCH

MREMAP = {"x86_64": 25, "i686": 163, "ppc64le": 163, "s390x": 163}.get(os.uname().machine, 216)


@pytest.mark.parametrize("method", ["none", "fork", "spawn"])
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_kernel_that_refuses_mremap(tmp_path, method, code):
    path = tmp_path / "R"
    words = [sys.executable, "-c", SECCOMP, MREMAP, code, *LOTUS, "trace", "-q", "-o", path, "--"]
    words += [*SPEAKING, PYTHON, PROGRAMS / "meanwhile.py", method, "true"]
    ended = execute(words, tmp_path, path, env=SMALL_TORCH)
    if ended.code == 77:
        pytest.skip("this kernel takes no seccomp filter")
    assert (ended.code, ended.out, ended.err) == (0, UNDISTURBED, "")
    run = ended.run
    assert not len(run.lost)
    assert (len(run.waits), len(run.ops)) == (32, 192)
    assert os.listdir(path / "state") == []


# The page is there when the filter comes, and workers are forked after it.
LATE = """
import os, sys
from torch.utils.data import DataLoader
loader = DataLoader(list(range(8)), batch_size=4, collate_fn=list)
print(list(loader))
code = sys.argv[1].replace("os.execvp(sys.argv[1], sys.argv[1:])", "")
sys.argv[1:2] = []
exec(code)
loader = DataLoader(list(range(8)), batch_size=4, collate_fn=list, num_workers=2,
                    multiprocessing_context="fork")
print(list(loader), list(loader))
"""


def test_a_program_that_refuses_mremap_later(tmp_path):
    path = tmp_path / "R"
    program = [*SPEAKING, PYTHON, "-c", LATE, SECCOMP, MREMAP, errno.EPERM]
    ended = execute([*LOTUS, "trace", "-q", "-o", path, "--", *program], tmp_path, path,
                    env=SMALL_TORCH)  # fmt: skip
    if ended.code == 77:
        pytest.skip("this kernel takes no seccomp filter")
    batches = "[[0, 1, 2, 3], [4, 5, 6, 7]]"
    assert (ended.code, ended.out) == (0, f"{batches}\n{batches} {batches}\n")
    assert ended.err == ""
    assert not len(ended.run.lost)
    assert len(ended.run.batches) == 6
    # The one page is that of the parent, and nobody else wrote into it.
    (page,) = (path / "state").glob("*.state")
    assert int.from_bytes(page.read_bytes()[16:24], sys.byteorder, signed=True) == -1
