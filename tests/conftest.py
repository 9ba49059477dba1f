"""What all tests start from, however they were started.

Hypothesis tries the same examples at every run; HYPOTHESIS_PROFILE=search looks for new ones.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# nohup and a shell's background jobs ignore these, and so would every program that a test starts.
for _name in ("SIGINT", "SIGQUIT", "SIGHUP"):
    _number = getattr(signal, _name)
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
