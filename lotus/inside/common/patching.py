"""The registry of what lotus puts in place of torch's methods, and of functions named by `--op`.

Each method has one ordered list of listeners. What they make around the original, the outermost
first, is itself the method's replacement, so a single listener costs a single call. Features that
know nothing of each other hook one method together, of a class, a module or one object, and each
leaves by itself, whichever came first: then the replacement is made anew.

What somebody else has put over ours stays, and what it calls stays below it: a function that the
program may hold has to pass calls on once its feature is off. Who listens later goes on top.
"""

import functools
import weakref

from .guard import hide_our_frames, hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Function = Callable[..., Any]
    Around = Callable[[Function], Function]  # gets what comes next, returns what is called instead

# The features, outermost first. Operations named by `--op` are whatever the program calls. A trace
# records a loader with all that acts on it. `lotus tune` times all that the program waits for; a
# mode makes its rounds before a batch is asked for; shares and settings are what the loader itself
# is. What times the averaging of gradients for a trace is innermost: DistributedDataParallel alone.
ORDER = ("operations", "trace", "trials", "mode", "balance", "settings", "gradients")
_MARK = "_lotus_patch"  # attribute of what stands for a method of one object


class _Nobody:
    """Where a fault is reported of which nobody need know: frames could not be hidden."""

    on = True

    def fault(self, error: Exception) -> None:
        pass


def hide(error: BaseException) -> None:
    """Take our frames out of an exception on its way to the program; not the end of a loop."""
    if not isinstance(error, StopIteration):
        hide_our_frames(_Nobody(), error)


def _position(feature: str) -> int:
    return ORDER.index(feature.partition(":")[0])


class Patch:
    """What listens on one method, and what they make of it."""

    def __init__(self, original: "Function") -> None:
        self.original = original
        self.arounds: dict[str, Around] = {}  # by feature

    def add(self, feature: str, around: "Around") -> "Function":
        """Have a feature listen, with this instead of what it listened with before."""
        return self._compose({**self.arounds, feature: around})

    def remove(self, feature: str, around: "Around") -> "Function | None":
        """Have it listen no more; None where it listens with something else by now."""
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
    """The patch of a method of a class, of a function of a module, and where it is installed."""

    def __init__(self, owner: "Any", name: str, before: "Any") -> None:
        self.owner, self.name, self.before = owner, name, before
        self.inherited = name not in vars(owner)
        # Of a static or class method the function is replaced.
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
        """Whether nobody has put anything over ours, or in its place."""
        return vars(self.owner).get(self.name) is self.installed

    def _install(self, function: "Any") -> None:
        # Lightning makes a loader again by its signature.
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
    """Have a feature of ORDER listen on a method of a class or a module; returns what ends that.

    A feature may be several, told apart by what stands after a colon: "operations:Image.open".
    Where `owner` itself has no such method, one that it inherits is put over there if `inherited`.
    Raises KeyError or AttributeError where there is none.
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
    """What `owner.name` is, with a static or class method not bound yet."""
    for kind in owner.__mro__ if isinstance(owner, type) else ():
        if name in vars(kind):
            return vars(kind)[name]
    return vars(owner)[name] if name in vars(owner) else getattr(owner, name)


def listen_to(thing: "Any", name: str, feature: str, around: "Around") -> None:
    """Have a feature listen on a method of one object, as long as that lives.

    `around` is as for `listen`; what it gets and returns is called without the object, which must
    be held weakly: an iterator in a cycle would keep its workers until Python collects garbage.
    """
    here: Any = vars(thing).get(name)
    patch, place = getattr(here, _MARK, (None, 0))
    if patch is None or place != id(here):  # or it is a function that was made to look like ours
        patch = Patch(_of_the_class(thing, name) if here is None else here)
    function: Any = patch.add(feature, around)
    vars(function)[_MARK] = patch, id(function)
    vars(thing)[name] = function


def _of_the_class(thing: "Any", name: str) -> "Function":
    kind, reference = type(thing), weakref.ref(thing)

    def method(*args: "Any", **kwargs: "Any") -> "Any":
        return getattr(kind, name)(reference(), *args, **kwargs)

    return functools.wraps(getattr(kind, name))(hook(method))
