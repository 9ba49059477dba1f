"""As torch._utils."""

import sys
import traceback


class ExceptionWrapper:
    def __init__(self, exc_info=None, where="in background"):
        exc_info = exc_info or sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self):
        raise self.exc_type(f"Caught {self.exc_type.__name__} {self.where}.\n{self.exc_msg}")
