"""A state page per process: what it is doing and since when, readable from outside.

The page is a file of 4096 bytes in ``RUN/state``. It is allocated at the start, so that a full disk
never causes a SIGBUS, and mapped shared, so that it survives a kill. Words are signed 64-bit
integers in native byte order; two words are not written atomically. The mapping needs no open
descriptor. Word OPERATIONS + id is the time when an operation started, 0 once it has ended: the
latest is the current one. Batches that are not recorded (`--every`, `--batches`) leave no sample
and no operation.

On a file system that allocates at each write (btrfs, ZFS) or that uses a server, a full disk could
still cause a SIGBUS. There the file is in /dev/shm while the process is alive, and ``RUN/state``
has a link to it.
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
STARTING, IDLE, FETCH, COLLATE, SEND, WAIT, STEP, ENDED, BETWEEN = range(9)  # phases


# statfs types of file systems on which an allocated page can always be written.
_STEADY = {0xEF53, 0x58465342, 0x01021994}  # ext2 to ext4, XFS, tmpfs
SHM = "/dev/shm"
_libc = ctypes.CDLL(None, use_errno=True)  # not after a fork, when a lock of dlopen may be held
_libc.mmap.restype = _libc.mremap.restype = _pointer = ctypes.c_void_p
_size = ctypes.c_size_t
_libc.mmap.argtypes = [_pointer, _size, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mremap.argtypes = [_pointer, _size, _size, ctypes.c_int, _pointer]
_libc.munmap.argtypes = [_pointer, _size]
_MOVE = 1 | 2  # MREMAP_MAYMOVE | MREMAP_FIXED
_FIXED = 0x10  # MAP_FIXED
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_ALONE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FAILED = (None, _pointer(-1).value)


class StatePage:
    """512 words at a fixed address, so that hooks can keep `words`."""

    def __init__(self) -> None:
        self.words = memoryview(bytearray(SIZE)).cast("q")
        self._address: int | None = None
        self._attached = False  # whether the words are mapped to a file
        self._moved: tuple[str, str] | None = None  # (file in /dev/shm, link to it in the run)
        try:
            memory = mmap.mmap(-1, SIZE, _ALONE)
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            self.words = memoryview(memory).cast("q")
        except (OSError, ValueError, TypeError):
            pass  # the words are not visible outside

    def attach(self, path: str) -> None:
        """Create the file `path` and map the words to it. Raises OSError."""
        if self._address is None:
            raise OSError("no page to put a file under")
        if not _is_steady(os.path.dirname(path)):
            link, path = path, os.path.join(SHM, f"lotus-{os.path.basename(path)}")
            if not _is_steady(SHM):
                raise OSError("no file system that a page of memory can rely on")
            os.symlink(path, link)
            self._moved = (path, link)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, SIZE)
            self._map(mmap.MAP_SHARED, fd)
            self._attached = True
        except OSError:
            os.unlink(path)
            if self._moved is not None:
                os.unlink(self._moved[1])
                self._moved = None
            raise
        finally:
            os.close(fd)

    def detach(self) -> None:
        """Unmap the file from the words, because in a forked child it belongs to the parent.

        Raises OSError if that is not allowed; then the words must not be written.
        """
        self._moved = None
        if not self._attached or self._address is None:
            return  # the child's words are its own already
        try:
            self._map(_ALONE, -1)
        except OSError:  # a seccomp filter of the program may refuse mremap
            address = _libc.mmap(self._address, SIZE, _READ_WRITE, _ALONE | _FIXED, -1, 0)
            if address != self._address:
                raise
        self._attached = False

    def settle(self) -> None:
        """Move a page in /dev/shm into the run when the process ends. Raises OSError."""
        moved, self._moved = self._moved, None
        if moved is not None:
            try:
                settle(*moved, bytes(self.words))
            except OSError:  # the disk is full, the run is gone
                os.unlink(moved[0])
                raise

    def _map(self, flags: int, fd: int) -> None:
        # Not with MAP_FIXED, which leaves a hole if the file system refuses.
        fresh = _libc.mmap(None, SIZE, _READ_WRITE, flags, fd, 0)
        if fresh in _FAILED:
            raise OSError(ctypes.get_errno(), "mmap of the state page")
        if _libc.mremap(fresh, SIZE, SIZE, _MOVE, self._address) != self._address:
            error = ctypes.get_errno()
            _libc.munmap(fresh, SIZE)
            raise OSError(error, "mremap of the state page")


def settle(path: str, link: str, content: bytes) -> None:
    """Replace the link to a state page by its content, and remove `path` in /dev/shm.

    Raises OSError; then both are unchanged.
    """
    fd = os.open(f"{link}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
    os.replace(f"{link}.new", link)
    os.unlink(path)


def _is_steady(folder: str) -> bool:
    # struct statfs begins with the type, a long.
    status = ctypes.create_string_buffer(512)
    if _libc.statfs(os.fsencode(folder), status):
        raise OSError(ctypes.get_errno(), "statfs", folder)
    return ctypes.c_long.from_buffer(status).value & 0xFFFFFFFF in _STEADY


def word_of(operation: int) -> int:
    """Return the word of an operation; operations beyond the page share the last word."""
    return min(OPERATIONS + operation, LAST)
