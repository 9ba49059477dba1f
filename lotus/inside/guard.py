"""What keeps lotus out of the program's way: its frames unseen, its faults its own."""

import os
from functools import wraps

_HERE = os.path.dirname(os.path.abspath(__file__))
_STDLIB = os.path.dirname(os.__file__)
# Code objects of hooks carry this file name. It holds the two words by which CPython's
# warnings module knows frames to leave out when it counts `stacklevel`, so that a warning
# from the user's code still names the user's line; and by it we know our frames.
HOOK_FILE = "<lotus hook, as importlib._bootstrap>"


def hook(function):
    """Mark a function as a hook: see HOOK_FILE."""
    function.__code__ = function.__code__.replace(co_filename=HOOK_FILE)
    return function


def ours(frame_or_traceback):
    code = getattr(frame_or_traceback, "tb_frame", frame_or_traceback).f_code
    return code.co_filename == HOOK_FILE or os.path.dirname(code.co_filename) == _HERE


def strip(traceback):
    """Return `traceback` without the frames of lotus."""
    while traceback is not None and ours(traceback):
        traceback = traceback.tb_next
    link = traceback
    while link is not None:
        after = link.tb_next
        while after is not None and ours(after):
            after = after.tb_next
        if after is not link.tb_next:
            link.tb_next = after
        link = after
    return traceback


def _of_the_program(error):
    """Whether a signal handler of the program raised `error` while we were at work."""
    traceback = error.__traceback__
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not ours(traceback) and (not path.startswith(_STDLIB) or "-packages" in path):
            return True
        traceback = traceback.tb_next
    return False


def guarded(method):
    """A method of the recorder that the hooks call: does nothing once recording is off."""

    @wraps(method)
    def call(self, *args, **kwargs):
        if not self.on:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if _of_the_program(error):
                raise
            self.fault(error)
            return None

    return call
