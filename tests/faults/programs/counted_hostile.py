"""What a program may do to the counters of `lotus trace --counters`; the argument says which.

Of several each is done in a child of its own, behind a line with its name.
"""

import ctypes
import gc
import os
import random
import resource
import signal
import struct
import sys
import threading

from torch.utils.data import DataLoader, Dataset

try:
    import lotus
except ImportError:  # the span does nothing without it
    lotus = None

LOWEST = 500  # where the tracer keeps its descriptors


class Add:
    def __call__(self, value):
        return value + 1


class Work:
    """Enough for a clock to see."""

    def __call__(self, value):
        return value + sum(range(20_000)) * 0


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Numbers(Dataset):
    def __init__(self, *transforms, size=8):
        self.transform = Compose(*(transforms or (Add(), Work())))
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.transform(index)


def batches(data, **options):
    return list(DataLoader(data, batch_size=4, collate_fn=tuple, **options))


class Late(TimeoutError):
    pass


def signals():
    """A handler raises at random moments: each exception comes out once, as it was."""
    data = Numbers(Add(), Add())
    print(batches(data))
    raised, strange = [], []
    kinds = (Late, OSError, ValueError, KeyboardInterrupt, RuntimeError)

    def handler(number, frame):
        raised.append(random.choice(kinds)("mine", len(raised)))
        raise raised[-1]

    random.seed(5)
    signal.signal(signal.SIGALRM, handler)
    for number in range(1500):
        loader = DataLoader(data, batch_size=4, collate_fn=tuple)
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 6e-4))
            while len(raised) == number:
                for _ in loader:
                    pass
            strange.append((number, "swallowed"))
        except BaseException as error:
            if len(raised) != number + 1 or error is not raised[-1]:
                strange.append((number, repr(error)))
    print(len(raised), strange, batches(data))


def opening():
    """A handler raises while the counters are opened, again and again."""
    raised = []

    def handler(number, frame):
        raised.append(number)
        raise Late("mine")

    signal.signal(signal.SIGALRM, handler)
    data = Numbers(Add())
    for number in range(60):
        try:
            signal.setitimer(signal.ITIMER_REAL, 3e-4)
            while len(raised) <= number:
                batches(data)
        except Late:
            pass
    print(batches(Numbers()))
    print(sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:3])


class Closes:
    """Closes all but one of the tracer's descriptors and puts files of its own there."""

    def __init__(self):
        self.mine = []

    def __call__(self, value):
        if value == 2 and not self.mine:
            os.closerange(LOWEST + 2, LOWEST + 40)
            read, write = os.pipe()
            os.write(write, b"mine" * 100)
            self.mine = [os.dup2(read, number) for number in range(LOWEST + 2, LOWEST + 40)]
        return value


def siblings():
    """What the program opened under the numbers of closed counters stays open and unread."""
    closes = Closes()
    data = Numbers(closes, Work(), size=16)
    print(batches(data), batches(data))
    print(os.read(closes.mine[0], 1 << 10) == b"mine" * 100)
    print(all(os.fstat(fd).st_ino == os.fstat(closes.mine[0]).st_ino for fd in closes.mine))


def limit():
    """Few descriptors are allowed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    print(batches(Numbers()))
    print(batches(Numbers(), num_workers=1))


class Forks(Work):
    def __call__(self, value):
        pid = os.fork()
        if pid == 0:
            super().__call__(value)
            os._exit(7)
        return super().__call__(value + (os.waitpid(pid, 0)[1] == 7 << 8))


def fork():
    """A child in the midst of an operation leaves the counters to its parent."""
    print(batches(Numbers(Forks(), Work())))
    print(batches(Numbers(Forks(), Work()), num_workers=1))


def spans():
    """A span that begins in one fetch ends in another one."""
    from torch.utils.data import IterableDataset  # the stand-in for torch has none

    class Spanned(IterableDataset):
        def __iter__(self):
            with lotus.span("all of it") if lotus else open(os.devnull):
                for value in range(12):
                    yield Work()(value)

    print(batches(Spanned()))


class Nested(Dataset):
    def __init__(self):
        self.transform = Compose(Work(), self.inside, Work())

    def __len__(self):
        return 4

    def inside(self, value):
        return value + len(batches(Numbers(size=4)))

    def __getitem__(self, index):
        return self.transform(index)


def nested():
    print(batches(Nested()))


def threads():
    """Many threads fetch, one after the other and for a while together."""
    done = []

    def fetch():
        done.append(batches(Numbers(size=4)))

    for _ in range(30):
        thread = threading.Thread(target=fetch)
        thread.start()
        thread.join()
    print(done == [done[0]] * 30)
    print(sum(fd >= LOWEST for fd in map(int, os.listdir("/proc/self/fd"))) < 40)


class Many:
    def __call__(self, value):
        for _ in range(40_000 if lotus else 0):
            with lotus.span("one of many"):
                pass
        return value


def many():
    """More operations in a batch than are counted."""
    print(batches(Numbers(Many(), Work(), size=4)))


def errno():
    """The last error number of the program's own calls by ctypes stays."""
    library = ctypes.CDLL(None, use_errno=True)
    library.close(-1)
    print(batches(Numbers()), ctypes.get_errno())


def audit():
    """The program allows nobody to load libraries."""

    def refuse(event, arguments):
        if event.startswith("ctypes.dlopen"):
            raise PermissionError("not in here")

    sys.addaudithook(refuse)
    print(batches(Numbers()))


def seccomp():
    """A filter that kills whoever opens a counter."""
    call = {"x86_64": 298}[os.uname().machine]
    program = b"".join(
        struct.pack("<HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0),  # load the system call's number
            (0x15, 0, 1, call),
            (0x06, 0, 0, 0x80000000),  # SECCOMP_RET_KILL_PROCESS
            (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
        )
    )
    buffer = ctypes.create_string_buffer(program)
    filters = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(buffer)))
    prctl = ctypes.CDLL(None).prctl
    zero = ctypes.c_ulong(0)
    print(prctl(38, ctypes.c_ulong(1), zero, zero, zero))  # PR_SET_NO_NEW_PRIVS
    print(prctl(22, ctypes.c_ulong(2), filters))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
    print(batches(Numbers()))


def main(names):
    done = {name: value for name, value in globals().items() if callable(value)}
    if len(names) == 1:
        return done[names[0]]()
    gc.freeze()  # each child would look through all of torch at its end
    for name in names:
        print("==", name, flush=True)
        pid = os.fork()
        if pid == 0:
            return done[name]()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == 0, f"{name} ended with {code}"
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
