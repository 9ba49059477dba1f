"""Imports modules once and forks, for each client, a process that runs a program.

Arguments: the path of the socket, a descriptor that gets a byte once all is imported, the process
with which the server ends, and the modules; before those, folders where they are found.
The program finds what a fresh Python has: none of what was imported here is in sys.modules until
the program, or what lotus puts into it, imports it (`Kept`).
"""

import sys

_BARE = set(sys.modules)  # what each Python has at its start

import array  # noqa: E402
import builtins  # noqa: E402
import contextlib  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import selectors  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import site  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import types  # noqa: E402

# Not imported here though torch looks for it: at a process's end it prints what of it has not been
# freed, which is all that `gc.freeze` keeps. A program that imports it gets it.
_LEFT_OUT = ("triton",)


class Kept:
    """A finder of the modules that were imported here; each import gives one as if it was new.

    First on sys.meta_path, it notes while modules are imported which ones each brings along. In a
    program it gives the modules back through the machinery of import, in that order, so that other
    finders, as lotus's, see each import.
    """

    def __init__(self):
        self.brings = {}  # module name: names of those that were imported while it was
        self.modules = {}
        self._open = []  # being imported
        self._busy = set()
        self._giving = False

    def find_spec(self, name, path=None, target=None):
        if self._giving:
            module = self.modules.get(name)
            if module is None:
                return None
            spec = importlib.machinery.ModuleSpec(name, Giving(self, name))
            if hasattr(module, "__path__"):
                spec.submodule_search_locations = []
            return spec
        if name in _LEFT_OUT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util._find_spec(name, path, target)
        finally:
            self._busy.discard(name)
        if spec is None:
            return None
        if self._open:
            self.brings[self._open[-1]].append(name)
        self.brings.setdefault(name, [])
        loader = spec.loader
        if loader is None or isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return spec
        original = loader.exec_module

        def exec_module(module):
            vars(loader).pop("exec_module", None)
            before = set(sys.modules)
            self._open.append(name)
            try:
                original(module)
            finally:
                self._open.pop()
            # What put itself into sys.modules.
            self.brings[name] += [
                other for other in sys.modules if other not in before and other not in self.brings
            ]

        with contextlib.suppress(AttributeError):
            loader.exec_module = exec_module
        return spec

    def keep(self):
        """Take all out of sys.modules that a fresh Python does not have there."""
        self._giving = True
        for name in [name for name in sys.modules if name not in _BARE]:
            self.modules[name] = sys.modules.pop(name)


class Giving:
    """A loader of one module that is there already."""

    def __init__(self, kept, name):
        self._kept, self._name = kept, name

    def create_module(self, spec):
        module = self._kept.modules.pop(self._name)
        self._spec = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module):
        with contextlib.suppress(AttributeError):
            module.__spec__ = self._spec
        for name in self._kept.brings.get(self._name, ()):
            if name in sys.modules or name not in self._kept.modules:
                continue
            if name in self._kept.brings:
                importlib.import_module(name)
            else:
                sys.modules[name] = self._kept.modules.pop(name)


def main():
    path, ready, owner, *names = sys.argv[1:]
    owner = os.pidfd_open(int(owner))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.pop(0)  # the folder of this file
    variables = dict(os.environ)
    # numpy's OpenBLAS would start threads, which a fork does not have.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    kept = Kept()
    sys.meta_path.insert(0, kept)
    paths = list(sys.path)
    for name in names:
        if os.path.isabs(name):
            sys.path.insert(0, name)
        else:
            importlib.import_module(name)
    sys.path[:] = paths
    del os.environ["OPENBLAS_NUM_THREADS"]
    sys.path_importer_cache.clear()
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        raise SystemExit(f"{names} started threads, which a fork would not have: {threads}")
    set_by_import = {n: t for n, t in os.environ.items() if variables.get(n) != t}
    # The end of a program would look at all of this again, and copy it.
    gc.collect()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    with open(f"{path}.pid", "w") as file:
        file.write(str(os.getpid()))
    os.write(int(ready), b"y")
    os.close(int(ready))
    words = _serve(listening, owner, os.path.dirname(path))
    # From here on this is the program's process.
    for name, text in set_by_import.items():
        os.environ.setdefault(name, text)
    sys._warm = os.path.join(os.path.dirname(path), "python")
    kept.keep()
    return words, kept


def _serve(listening, owner, folder):
    """Answer clients until the owner ends; returns, in a forked child, what it is to run."""
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(owner, selectors.EVENT_READ)
    clients = {}  # a client's connection: process, its pidfd
    processes = {}  # a pidfd: process, its client's connection
    while True:
        for key, _ in selector.select():
            if key.fileobj is listening:
                connection, _address = listening.accept()
                request, fds = _receive(connection)
                if request is None:
                    connection.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    # Objects that go later must not close what has their numbers then.
                    selector.close()
                    for other in (listening, connection, *clients):
                        other.detach()
                    return _become(request, fds)
                for fd in fds:
                    os.close(fd)
                pidfd = os.pidfd_open(pid)
                clients[connection] = pid, pidfd
                processes[pidfd] = pid, connection
                selector.register(connection, selectors.EVENT_READ)
                selector.register(pidfd, selectors.EVENT_READ)
            elif key.fileobj == owner:
                for pid, _connection in processes.values():
                    os.kill(pid, signal.SIGKILL)
                shutil.rmtree(folder, ignore_errors=True)  # where the owner was killed
                os._exit(0)
            elif key.fileobj in processes:
                pid, connection = processes.pop(key.fileobj)
                selector.unregister(key.fileobj)
                os.close(key.fileobj)
                _, status = os.waitpid(pid, 0)
                if connection in clients:
                    del clients[connection]
                    selector.unregister(connection)
                    with contextlib.suppress(OSError):
                        connection.sendall(struct.pack("i", status))
                    connection.close()
            elif key.fileobj in clients:
                connection = key.fileobj
                pid, pidfd = clients[connection]
                try:
                    data = connection.recv(1)
                except OSError:
                    data = b""
                if data:
                    os.kill(pid, data[0])
                else:  # it was killed
                    os.kill(pid, signal.SIGKILL)
                    del clients[connection]
                    selector.unregister(connection)
                    connection.close()


def _receive(connection):
    size = struct.calcsize("i")
    data, ancillary, _flags, _address = connection.recvmsg(4, socket.CMSG_SPACE(253 * size))
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % size])
    if len(data) < 4:
        return None, list(fds)
    left = struct.unpack("I", data)[0]
    parts = b""
    while len(parts) < left:
        part = connection.recv(left - len(parts))
        if not part:
            return None, list(fds)
        parts += part
    return json.loads(parts), list(fds)


def _become(request, fds):
    """Be, in the forked child, the process that the client would have been."""
    os.setsid()
    here, *fds = fds
    os.fchdir(here)
    wanted = dict(zip(request["fds"], fds, strict=True))
    # First out of the way of all numbers that are wanted.
    above = max([*wanted, *fds, 2]) + 1
    for number, fd in wanted.items():
        os.dup2(fd, above + number, inheritable=False)
    for number in {int(name) for name in os.listdir("/proc/self/fd")}:
        if number < above:
            with contextlib.suppress(OSError):
                os.close(number)
    for number in wanted:
        os.dup2(above + number, number, inheritable=True)
        os.close(above + number)
    os.umask(request["umask"])
    if os.nice(0) < request["nice"]:
        os.nice(request["nice"] - os.nice(0))
    os.sched_setaffinity(0, request["affinity"])
    os.environ.clear()
    for name, text in request["environ"].items():
        os.environb[name.encode("latin-1")] = text.encode("latin-1")
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number in (signal.SIGPIPE, signal.SIGXFSZ):
            continue  # Python ignores them
        ignored = request["ignored"] >> (number - 1) & 1
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if ignored else usual)
    blocked = {n for n in signal.valid_signals() if request["blocked"] >> (n - 1) & 1}
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number not in wanted:
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
        elif name == "stdout" and os.isatty(number):
            sys.stdout.reconfigure(line_buffering=True)
    return request["words"]


def _hidden(folders, modules):
    """Whether a folder has another module of one of these names, which the program is to find."""
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder):
                module = modules.get(entry.partition(".")[0])
                file = getattr(module, "__file__", None) or ""
                path = os.path.realpath(os.path.join(folder, entry))
                if module is not None and path not in (file, os.path.dirname(file)):
                    return True
    return False


def _prepare(words, kept):
    """Set up what Python sets up for a command line; returns the code and its module.

    Where the program has a torch of its own, this process becomes a real Python.
    """
    own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    own.append(os.path.dirname(os.path.realpath(words[0])) if words[0] != "-c" else ".")
    if _hidden(own, kept.modules):
        os.execv(sys.executable, [sys.executable, *words])
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    module.__annotations__ = {}
    sys.modules["__main__"] = module
    sys.orig_argv = [sys.executable, *words]
    sys.argv = list(words)
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if os.environ.get("PYTHONPATH"):
        sys.path[:0] = list(dict.fromkeys(os.path.abspath(path) for path in named))
    site.execsitecustomize()
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        return compile(words[1], "<string>", "exec"), module
    sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
    module.__file__ = words[0]
    module.__cached__ = None
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", words[0])
    try:
        with open(words[0], "rb") as file:
            text = file.read()
    except OSError as error:
        sys.stderr.write(
            f"{sys.executable}: can't open file {os.path.abspath(words[0])!r}: "
            f"[Errno {error.errno}] {error.strerror}\n"
        )
        raise SystemExit(2) from None
    return compile(text, words[0], "exec"), module


def _run(words, kept):
    """Run the program to its end; returns only where it ran through."""
    code, module = _prepare(words, kept)
    exec(code, vars(module))


_words_and_kept = main()
try:
    _run(*_words_and_kept)
except SystemExit:
    raise
except BaseException as _error:
    _trace = _error.__traceback__
    while _trace is not None and _trace.tb_frame.f_code.co_filename == __file__:
        _trace = _trace.tb_next
    sys.excepthook(type(_error), _error.with_traceback(_trace), _trace)
    del _trace
    sys.excepthook = lambda *_: None  # it has been shown; Python ends as it does after it
    raise
