"""Hashes of what decides how a sample is made: state of a data set, parameters and code.

A hash of code misses what it reaches by other ways than names: files, environment, native code. So
cached samples are compared with new ones now and then: see cached_samples.py.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import marshal
import os
import sys
import types

from ..common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_MOST_OBJECTS = 200_000  # that are looked at one by one
_MOST_BYTES = 1 << 30  # of all texts, arrays and tensors
_DEEPEST = 40
_INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries
_LIBRARY = os.path.dirname(os.__file__) + os.sep
# Attributes of a class that no sample depends on.
_PLACES = ("__module__", "__doc__", "__firstlineno__")
_BASIC = (type(None), bool, int, float, complex, str, bytes)
_OF_CLASSES = (types.FunctionType, *_BASIC)  # attributes of a class, also `__getitem__`
_Memo: type = type(functools.lru_cache(len))
_GENERATORS = ("Generator", "RandomState", "Random")  # of numpy, torch and Python
_FEW, _CHUNK = 64, 4096  # items of a list
_NUMBERED = 2  # the format of marshal without references, which depends on contents only


class FingerprintError(Exception):
    """The reason why an object has no hash, as a clause."""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that usually make samples."""
    known = {"python": "{}.{}".format(*sys.version_info)}
    for name in ("torch", "torchvision", "torchaudio", "PIL", "numpy", "cv2", "albumentations"):
        module = sys.modules.get(name)
        if module is not None:
            known[name] = str(getattr(module, "__version__", "?"))
    return known


def fingerprint(*things: object, without: Iterable[object] = ()) -> str:
    """Return a hash of objects: their types, state and code, in hexadecimal digits.

    It is the same in other processes of the same program. Objects in `without` count as nothing,
    wherever they are. Raises FingerprintError.
    """
    walk = _Walk({id(thing) for thing in without})
    for thing in things:
        walk.add(thing, 0)
    return walk.digest.hexdigest()


class _Walk:
    def __init__(self, without: set[int]) -> None:
        self.digest = hashlib.sha256()
        self._without = without
        self._numbers: dict[int, int] = {}  # by id, of objects that were met
        self._alive: list[object] = []  # so that ids stay unique
        self._bytes = 0

    def _put(self, kind: str, data: Any = b"") -> None:
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self._bytes += len(view)
        if self._bytes > _MOST_BYTES:
            raise FingerprintError("the data set holds more than 1 GiB")
        self.digest.update(f"{kind}:{len(view)};".encode())
        self.digest.update(view)

    def add(self, thing: Any, depth: int) -> None:
        kind = type(thing)
        if id(thing) in self._without:
            self._put("left out")
            return
        if kind in _BASIC:
            self._put(kind.__name__, repr(thing).encode("utf-8", "surrogatepass"))
            return
        number = self._numbers.get(id(thing))
        if number is not None:
            self._put(f"again {number}")
            return
        if len(self._numbers) >= _MOST_OBJECTS or depth > _DEEPEST:
            raise FingerprintError("the data set holds too many objects")
        self._numbers[id(thing)] = len(self._numbers)
        self._alive.append(thing)
        add = _KINDS.get(kind)
        if add is not None:
            add(self, thing, depth + 1)
        elif issubclass(kind, type):
            self._class(thing, depth + 1)
        else:
            self._object(thing, depth + 1)

    # Containers.

    def _sequence(self, things: Any, depth: int) -> None:
        # Quick for the long lists of files and classes that data sets have.
        self._put(f"{type(things).__name__} {len(things)}")
        for start in range(0, len(things), _CHUNK):
            chunk = things[start : start + _CHUNK]
            if len(chunk) > _FEW and not self._without.intersection(map(id, chunk)):
                try:
                    self._put("chunk", marshal.dumps(chunk, _NUMBERED))
                    continue
                except ValueError:  # other objects than those of the basic types
                    pass
            for thing in chunk:
                self.add(thing, depth)

    def _dictionary(self, things: dict[Any, Any], depth: int) -> None:
        self._put(f"dict {len(things)}")
        for key, value in things.items():
            self.add(key, depth)
            self.add(value, depth)

    def _set(self, things: Any, depth: int) -> None:
        self._put(f"{type(things).__name__} {len(things)}")
        parts = []
        for thing in things:
            walk = _Walk(self._without)
            walk.add(thing, depth)
            parts.append(walk.digest.digest())
        self._put("items", b"".join(sorted(parts)))

    # Code.

    def _code(self, code: types.CodeType, depth: int) -> None:
        self._put("code", code.co_code)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.add((names, code.co_argcount, code.co_kwonlyargcount, code.co_flags), depth)
        self.add(code.co_consts, depth)

    def _function(self, function: Any, depth: int) -> None:
        self.add((_module_name(function), function.__qualname__), depth)
        code = function.__code__
        if _is_installed(code.co_filename):
            self._package(function.__module__)
            return
        self._code(code, depth)
        self.add((function.__defaults__, function.__kwdefaults__), depth)
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents, depth)
            except ValueError:  # not yet set
                self._put("empty")
        self._globals(code, function.__globals__, depth)

    def _globals(self, code: types.CodeType, names: dict[str, Any], depth: int) -> None:
        """Add what a function of the program names."""
        for name in code.co_names:
            if name in names:
                self._named(name, names[name], code.co_names, depth)
        for constant in code.co_consts:
            if type(constant) is types.CodeType:
                self._globals(constant, names, depth)

    def _named(self, name: str, value: Any, names: tuple[str, ...], depth: int) -> None:
        """Add a global variable or an attribute of a class; of a module, what `names` has of it.

        What has no hash counts by its name: locks and loggers are no part of a sample. So do random
        generators, whose state operations change: samples that depend on it differ when made again.
        """
        kind = type(value)
        if kind is types.ModuleType:
            path = getattr(value, "__file__", None)
            if path is not None and not _is_installed(path) and id(value) not in self._numbers:
                self._numbers[id(value)] = len(self._numbers)
                for inner in names:
                    if inner in vars(value):
                        self._named(inner, vars(value)[inner], names, depth + 1)
                del self._numbers[id(value)]
            return
        self._put("named", name.encode("utf-8", "surrogatepass"))
        if _is_generator(kind):
            self._put("generator", kind.__name__.encode())
            return
        if kind in (types.FunctionType, _Memo, *_BASIC) or issubclass(kind, type):
            self.add(value, depth)
            return
        with contextlib.suppress(FingerprintError):
            self.add(value, depth)

    def _memo(self, function: Any, depth: int) -> None:
        # Samples may come from files that were read for other ones, and are not opened again.
        name = getattr(function, "__name__", "a function")
        raise FingerprintError(f"{name} of the program keeps its results (functools.lru_cache)")

    def _method(self, method: Any, depth: int) -> None:
        self.add(method.__func__, depth)
        self.add(method.__self__, depth)

    def _builtin(self, function: Any, depth: int) -> None:
        self.add((function.__module__, function.__qualname__), depth)
        self._package(function.__module__)

    def _class(self, kind: type, depth: int) -> None:
        self.add((_module_name(kind), kind.__qualname__), depth)
        module = sys.modules.get(kind.__module__)
        path = getattr(module, "__file__", None)
        if kind.__module__ != "__main__" and (path is None or _is_installed(path)):
            self._package(kind.__module__)
            return
        for base in kind.__mro__[1:-1]:
            self.add(base, depth)
        for name, value in sorted(vars(kind).items()):
            value = getattr(value, "__func__", value)  # of class and static methods
            if type(value) is property:
                value = value.fget
            if name in _PLACES or (name.startswith("__") and type(value) not in _OF_CLASSES):
                continue
            self._named(name, value, (), depth)

    def _package(self, module: str | None) -> None:
        """Add the version of an installed package, in place of its code."""
        package = str(module).partition(".")[0]
        self._put("package", package.encode())
        self._put("version", str(getattr(sys.modules.get(package), "__version__", "")).encode())

    def _module(self, module: Any, depth: int) -> None:
        self.add(module.__name__, depth)
        self._package(module.__name__)

    # Objects.

    def _object(self, thing: Any, depth: int) -> None:
        kind = type(thing)
        package = kind.__module__.partition(".")[0]
        if package == "torch" and hasattr(thing, "untyped_storage"):
            self._tensor(thing, depth)
        elif package == "torch" and kind.__name__ in ("dtype", "device", "Size", "memory_format"):
            self.add((package, str(thing)), depth)
        elif package == "numpy" and hasattr(thing, "__array_interface__"):
            self._array(thing, depth)
        elif package == "numpy" and kind.__name__.endswith(("dtype", "DType")):
            self.add((package, str(thing)), depth)
        elif package == "PIL" and hasattr(thing, "getbands") and getattr(thing, "fp", None) is None:
            self._picture(thing, depth)
        elif isinstance(thing, os.PathLike):
            self.add((kind.__qualname__, os.fspath(thing)), depth)
        elif _is_enum(kind):
            self.add((kind.__qualname__, thing.name, thing.value), depth)
        elif kind.__module__ == "random" or "__reduce__" in vars(kind) or _is_native(thing):
            self._reduced(thing, depth)
        else:
            self.add(kind, depth)
            self.add(dict(attributes(thing)), depth)

    def _reduced(self, thing: Any, depth: int) -> None:
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception:
            name = type(thing).__qualname__
            raise FingerprintError(
                f"the data set holds a {name}, whose state is not known"
            ) from None
        self.add(type(thing).__qualname__, depth)
        if isinstance(reduced, tuple):
            for part in reduced:  # state, and iterators of items
                if hasattr(part, "__next__"):
                    part = list(part)
                self.add(part, depth)

    def _tensor(self, tensor: Any, depth: int) -> None:
        if tensor.device.type != "cpu" or tensor.is_sparse:
            raise FingerprintError("the data set holds a tensor that is not in dense CPU memory")
        torch: Any = sys.modules["torch"]
        self.add((type(tensor).__qualname__, str(tensor.dtype), tuple(tensor.shape)), depth)
        if tensor.numel() * tensor.element_size() > _MOST_BYTES:
            raise FingerprintError("the data set holds more than 1 GiB")
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        self._put("data", flat.view(torch.uint8).numpy() if flat.numel() else b"")

    def _picture(self, picture: Any, depth: int) -> None:
        # Of one whose file is open still, the pixels would have to be read.
        facts = (type(picture).__qualname__, picture.mode, picture.size, picture.getpalette())
        self.add((*facts, dict(picture.info)), depth)
        self._put("data", picture.tobytes())

    def _array(self, array: Any, depth: int) -> None:
        numpy: Any = sys.modules["numpy"]
        self.add((type(array).__qualname__, array.dtype.str, tuple(array.shape)), depth)
        if array.dtype.hasobject:
            self.add(array.tolist(), depth)
        elif array.nbytes > _MOST_BYTES:
            raise FingerprintError("the data set holds more than 1 GiB")
        else:
            flat = numpy.ascontiguousarray(array).reshape(-1)
            self._put("data", flat.view(numpy.uint8) if flat.size else b"")


def _module_name(thing: Any) -> str:
    """Return the name of its module; the program's own one has another name in spawned workers."""
    name = str(thing.__module__)
    return "__main__" if name == "__mp_main__" else name


def _is_installed(path: str) -> bool:
    return path.startswith(("<frozen ", "<lotus ", _LIBRARY)) or not _INSTALLED.isdisjoint(
        path.split(os.sep)
    )


def _is_generator(kind: type) -> bool:
    package = kind.__module__.partition(".")[0]
    return package in ("numpy", "random", "torch") and kind.__name__ in _GENERATORS


def _is_enum(kind: type) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(kind, enum.Enum)


class _Plain:
    """An object whose state is in its `__dict__`."""


def _is_native(thing: object) -> bool:
    """Return True if an object has state that is not in its `__dict__`."""
    kind = type(thing)
    return kind.__basicsize__ > _Plain.__basicsize__ or not hasattr(thing, "__dict__")


_KINDS: dict[type, Callable[[_Walk, Any, int], None]] = {
    list: _Walk._sequence,
    tuple: _Walk._sequence,
    dict: _Walk._dictionary,
    set: _Walk._set,
    frozenset: _Walk._set,
    types.CodeType: _Walk._code,
    types.FunctionType: _Walk._function,
    types.MethodType: _Walk._method,
    types.BuiltinFunctionType: _Walk._builtin,
    types.ModuleType: _Walk._module,
    _Memo: _Walk._memo,
}
