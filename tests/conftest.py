"""What all tests start from, however they were started.

Hypothesis tries the same examples at every run; HYPOTHESIS_PROFILE=search looks for new ones.
"""

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
    f"tests/{folder}/test_{name}.py": folder
    for folder, names in (
        ("integration", "counters operations parity records"),
        ("faults", "counters kills"),
    )
    for name in names.split()
}


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
