"""A state page per process: what it is doing now and since when, readable from outside.

4096 bytes in ``RUN/state``, allocated at the start (so that a full disk can never be a SIGBUS)
and mapped shared, so that it survives a kill. Words are signed 64-bit, native order; two words
are not written together. The mapping holds no descriptor: the program's open files stay as they
were. Word OPERATIONS + id holds when an operation last started: the one in hand is the latest.
"""

import ctypes
import mmap
import os

SIZE = 4096
MAGIC = 0x5453544C  # "LTST"
W_MAGIC, W_PID, W_WORKER, W_PHASE, W_SINCE, W_LOADER, W_EPOCH, W_BATCH = range(8)
W_SAMPLE, W_SAMPLE_SINCE, W_START = 8, 9, 10  # W_SAMPLE: its index, -1 where it has none
OPERATIONS = 16
LAST = SIZE // 8 - 1
STARTING, IDLE, FETCH, COLLATE, SEND, WAIT, STEP, ENDED = range(8)  # phases


class Page:
    """512 words at one address for the life of the process: hooks hold `words` for good."""

    def __init__(self):
        self.words = memoryview(bytearray(SIZE)).cast("q")
        self._address = None
        try:
            memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            self.words = memoryview(memory).cast("q")
        except (OSError, ValueError, TypeError):
            pass  # words that nobody sees

    def attach(self, path):
        """Make the file at `path` and put it under the words; raise OSError."""
        if self._address is None:
            raise OSError("no page to put a file under")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, SIZE)
            self._map(mmap.MAP_SHARED, fd)
        finally:
            os.close(fd)

    def detach(self):
        """Take the file away from under the words: in a forked child it is the parent's."""
        if self._address is not None:
            self._map(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)

    def _map(self, flags, fd):
        fixed = 0x10  # MAP_FIXED
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        if libc.mmap(self._address, SIZE, protection, flags | fixed, fd, 0) != self._address:
            raise OSError(ctypes.get_errno(), "mmap of the state page")


def word_of(operation):
    """Word of an operation; those past the page share the last word."""
    return min(OPERATIONS + operation, LAST)
