"""A state page per process: what it is doing now and since when, readable from outside.

4096 bytes in ``RUN/state``, allocated at the start (so that a full disk can never be a SIGBUS)
and mapped shared, so that it survives a kill. Words are signed 64-bit, native order. The mapping
holds no descriptor: the program's open files stay what they were.
"""

import ctypes
import os

SIZE = 4096
MAGIC = 0x5453544C  # "LTST"
# Word numbers. Two words that belong together are not written atomically.
W_MAGIC, W_PID, W_WORKER, W_PHASE, W_SINCE, W_LOADER, W_EPOCH, W_BATCH = range(8)
W_SAMPLE, W_SAMPLE_SINCE, W_START = 8, 9, 10
# Word OPERATIONS + id: since when this operation runs; 0: it does not.
OPERATIONS = 16
LAST = SIZE // 8 - 1
STARTING, IDLE, FETCH, COLLATE, SEND, WAIT, STEP, ENDED = range(8)

_PROT_READ_WRITE, _MAP_SHARED = 3, 1


def blank():
    """A page that nobody sees, for where there is none."""
    return memoryview(bytearray(SIZE)).cast("q")


def create(path):
    """Create the file and return its words as a memoryview of 512 int64; raise OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, SIZE)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        )
        address = libc.mmap(None, SIZE, _PROT_READ_WRITE, _MAP_SHARED, fd, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap of the state page")
    finally:
        os.close(fd)
    return memoryview((ctypes.c_char * SIZE).from_address(address)).cast("B").cast("q")


def word_of(operation):
    """Word of an operation; those past the page share the last word."""
    return min(OPERATIONS + operation, LAST)
