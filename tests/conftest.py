"""What all tests start from, however they were started.

Hypothesis tries the same examples at every run; HYPOTHESIS_PROFILE=search looks for new ones.
"""

import gc
import os
import signal
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# nohup and a shell's background jobs ignore these, and so would every program that a test starts.
for _name in ("SIGINT", "SIGQUIT", "SIGHUP"):
    _number = getattr(signal, _name)
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


# Files whose tests look at runs of the same programs.
_TOGETHER = {
    f"tests/{folder}/test_{name}.py": f"{folder} {names}"
    for folder, names in (
        ("integration", "counters operations parity records"),
        ("integration", "export pins_and_ranks"),
        ("faults", "counters kills"),
    )
    for name in names.split()
}


def pytest_collection_finish() -> None:
    """What was imported to find the tests stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Any:
    """A program that lotus starts in this process takes SIGCHLD, for which torch has set a handler:
    once, for all its loaders. It is put back."""
    before = signal.getsignal(signal.SIGCHLD)
    try:
        return (yield)
    finally:
        if callable(before):
            signal.signal(signal.SIGCHLD, before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several processes (`-n 2`) the tests of a file stay in one: they share what it made."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _TOGETHER.get(file, file)

    config.option.loadscopereorder = False  # as collected: those that start programs come first
    return ByFile(config, log)
