"""What a test starts as `python`: a server forks the program, this passes signals and its end on.

Defined in front of this text (`tests/warm/__init__.py`): PYTHON, FOLDER of the servers' sockets,
SERVER, the words that start one, and LIMITS, those of resources that a server has. It runs without
site and imports little: it takes 15 ms.
"""
# ruff: noqa: F821, SIM105

import os
import sys

# What changes how torch and its libraries start: each set of these has a server of its own.
_OF_LIBRARIES = ("OMP_", "MKL_", "KMP_", "OPENBLAS_", "GOMP_", "TORCH", "CUDA_", "LC_", "LANG")
# What changes how Python and the C library start.
_OF_PYTHON = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")
_OF_A_RUN = ("PYTHON", "LOTUS_", "OPENBLAS_", "TRUTH")


def _status(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1], 16)
    return 0


def _first_environ():
    with open("/proc/self/environ", "rb") as file:
        return b"\0" + file.read()


def _connected(environ):
    """A connection to the server of these variables, which is started where there is none."""
    import _socket
    import zlib

    of_libraries = sorted(name for name in environ if name.startswith(_OF_LIBRARIES))
    key = f"{zlib.crc32(repr([(n, environ[n]) for n in of_libraries]).encode()):08x}"
    path = f"{FOLDER}/{key}"
    stream = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        stream.connect(path)
        return stream
    except OSError:
        pass
    import fcntl
    import subprocess

    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            stream.connect(path)  # another one was first
            return stream
        except OSError:
            pass
        ready, writable = os.pipe()
        own = {name: environ[name] for name in environ if not name.startswith(_OF_A_RUN)}
        if "LC_CTYPE" in own and b"\0LC_CTYPE=" not in _first_environ():
            del own["LC_CTYPE"]  # Python itself has set it, and does so again
        with open(f"{path}.err", "wb") as err:
            subprocess.Popen(
                [PYTHON, SERVER[0], path, str(writable), *SERVER[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                pass_fds=[writable],
                env=own,
                cwd="/",
                start_new_session=True,
            )
        os.close(writable)
        ready_now = os.read(ready, 1)
        os.close(ready)
    if not ready_now:
        with open(f"{path}.err") as err:
            sys.stderr.write(err.read())
        os._exit(255)
    stream.connect(path)
    return stream


def _main():
    words = sys.argv[1:]
    # An option, or what is no plain file: a folder, a zip archive, standard input.
    plain = words and (words[0] == "-c" or words[0].endswith(".py"))
    own = any(name.startswith(_OF_PYTHON) and name != "PYTHONPATH" for name in os.environ)
    with open("/proc/self/limits") as file:
        limited = file.read() != LIMITS
    if not plain or own or limited:
        os.execv(PYTHON, [PYTHON, *words])
    import _socket
    import json
    import select
    import signal
    import struct

    blocked, ignored = _status("SigBlk:"), _status("SigIgn:")
    stream = _connected(os.environ)
    fds = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            os.fstat(fd)
        except OSError:
            continue
        if fd != stream.fileno() and os.get_inheritable(fd):
            fds.append(fd)
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "words": words,
        "environ": {
            os.fsencode(name).decode("latin-1"): os.fsencode(text).decode("latin-1")
            for name, text in os.environ.items()
        },
        "fds": fds,
        "umask": umask,
        "blocked": blocked,
        "ignored": ignored,
        "nice": os.nice(0),
        "affinity": sorted(os.sched_getaffinity(0)),
    }
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    data = json.dumps(request).encode()
    descriptors = struct.pack(f"{len(fds) + 1}i", here, *fds)
    stream.sendmsg(
        [struct.pack("I", len(data))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)]
    )
    stream.sendall(data)
    # What arrives from now on is passed on; what is ignored stays so.
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        if not ignored >> (number - 1) & 1 or number in (signal.SIGPIPE, signal.SIGXFSZ):
            try:
                signal.signal(number, lambda *_: None)
            except (OSError, ValueError):
                pass
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for fd in (0, 1, 2):
        try:
            os.close(fd)  # only the program has them now: a reader sees when it has ended
        except OSError:
            pass
    for fd in fds:
        if fd > 2:
            os.close(fd)
    while True:
        ready = select.select([stream, read], [], [])[0]
        if read in ready:
            stream.sendall(os.read(read, 1))
        if stream in ready:
            break
    data = stream.recv(4)
    if len(data) < 4:
        os._exit(255)  # the server is gone
    status = struct.unpack("i", data)[0]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


_main()
