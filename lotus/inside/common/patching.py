"""Registry of the methods of torch, and functions named by `--op`, that lotus replaces.

Each method has one ordered list of listeners. The listeners wrap the original, the first one
outermost, and the result replaces the method, so a single listener costs a single call. Independent
features can hook the same method of a class, a module or an object and can leave in any order; the
replacement is then rebuilt.

If other code has replaced our replacement, both stay in place. So a function that the program may
hold has to pass calls on once its feature is off. A later listener then goes on top.
"""

import functools
import weakref

from .guard import hide_our_frames, hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Function = Callable[..., Any]
    Around = Callable[[Function], Function]  # takes the next function, returns its wrapper

# The features, outermost first. Operations named by `--op` include everything that the call does. A
# trace includes everything that acts on a loader. `lotus tune` times all that the program waits
# for; a mode averages before it requests a batch; shares and settings change the loader itself. The
# timing of gradients is innermost, so that it covers DistributedDataParallel only.
ORDER = ("operations", "trace", "trials", "mode", "balance", "settings", "gradients")
_MARK = "_lotus_patch"  # attribute of the replacement of an object's method


class _IgnoredFaults:
    """Ignores errors while frames are hidden."""

    on = True

    def fault(self, error: Exception) -> None:
        pass


def hide(error: BaseException) -> None:
    """Remove our frames from an exception that propagates to the program, unless it ends a loop."""
    if not isinstance(error, StopIteration):
        hide_our_frames(_IgnoredFaults(), error)


def _position(feature: str) -> int:
    return ORDER.index(feature.partition(":")[0])


class Patch:
    """The listeners of a method, and the function that they make of it."""

    def __init__(self, original: "Function") -> None:
        self.original = original
        self.arounds: dict[str, Around] = {}  # by feature

    def add(self, feature: str, around: "Around") -> "Function":
        """Add or replace the listener of a feature; return the new function."""
        return self._compose({**self.arounds, feature: around})

    def remove(self, feature: str, around: "Around") -> "Function | None":
        """Remove the listener of a feature; return None if it has another one by now."""
        if self.arounds.get(feature) is not around:
            return None
        return self._compose({name: a for name, a in self.arounds.items() if name != feature})

    def _compose(self, arounds: "dict[str, Around]") -> "Function":
        function = self.original
        for feature in sorted(arounds, key=_position, reverse=True):
            function = arounds[feature](function)
        self.arounds = arounds
        if function is not self.original and not isinstance(self.original, type):
            functools.update_wrapper(function, self.original)
        return function


class _OfOwner:
    """The patch of a method of a class or a function of a module."""

    def __init__(self, owner: "Any", name: str, before: "Any") -> None:
        self.owner, self.name, self.before = owner, name, before
        self.inherited = name not in vars(owner)
        # A static or class method keeps its kind; its function is replaced.
        self.kind = type(before) if isinstance(before, (staticmethod, classmethod)) else None
        self.patch = Patch(before if self.kind is None else before.__func__)
        self.installed: Any = before

    def listen(self, feature: str, around: "Around") -> None:
        self._install(self.patch.add(feature, around))

    def end(self, feature: str, around: "Around") -> None:
        function = self.patch.remove(feature, around)
        if function is None or not self.is_installed():
            return
        if self.patch.arounds:
            self._install(function)
            return
        _of_owners.pop((id(self.owner), self.name), None)
        if self.inherited:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)

    def is_installed(self) -> bool:
        """Return whether no other code has replaced ours."""
        return vars(self.owner).get(self.name) is self.installed

    def _install(self, function: "Any") -> None:
        # Lightning recreates a loader by its signature.
        if self.name == "__init__" and function is not self.patch.original:
            import inspect

            function.__signature__ = inspect.signature(self.patch.original)
        value = function if self.kind is None else self.kind(function)
        setattr(self.owner, self.name, value)
        self.installed = value


_of_owners: dict[tuple[int, str], _OfOwner] = {}  # by id of the owner, and name


def listen(
    owner: "Any", name: str, feature: str, around: "Around", inherited: bool = False
) -> "Callable[[], None]":
    """Add a listener to a method of a class or a module; return a function that removes it.

    `feature` is one of ORDER; a suffix after a colon distinguishes several listeners of a feature:
    "operations:Image.open". If `inherited` is true, a method that `owner` inherits is overridden in
    `owner`. Raises KeyError or AttributeError if there is no such method.
    """
    key = id(owner), name
    method = _of_owners.get(key)
    if method is None or not method.is_installed():
        before = _inherited(owner, name) if inherited else vars(owner)[name]
        method = _OfOwner(owner, name, before)
    method.listen(feature, around)
    _of_owners[key] = method
    return functools.partial(method.end, feature, around)


def _inherited(owner: "Any", name: str) -> "Any":
    """Return `owner.name` without binding a static or class method."""
    for kind in owner.__mro__ if isinstance(owner, type) else ():
        if name in vars(kind):
            return vars(kind)[name]
    return vars(owner)[name] if name in vars(owner) else getattr(owner, name)


def listen_to(thing: "Any", name: str, feature: str, around: "Around") -> None:
    """Add a listener to a method of one object for the life of the object.

    `around` is as for `listen`, but the functions it takes and returns are called without the
    object. They have to refer to it weakly: an iterator in a reference cycle would keep its workers
    alive until a garbage collection.
    """
    here: Any = vars(thing).get(name)
    patch, place = getattr(here, _MARK, (None, 0))
    if patch is None or place != id(here):  # or another function has copied our attributes
        patch = Patch(_of_the_class(thing, name) if here is None else here)
    function: Any = patch.add(feature, around)
    vars(function)[_MARK] = patch, id(function)
    vars(thing)[name] = function


def _of_the_class(thing: "Any", name: str) -> "Function":
    kind, reference = type(thing), weakref.ref(thing)

    def method(*args: "Any", **kwargs: "Any") -> "Any":
        return getattr(kind, name)(reference(), *args, **kwargs)

    return functools.wraps(getattr(kind, name))(hook(method))
