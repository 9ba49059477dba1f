"""Demangles C++ names, and shortens them for tables.

A mangled name of 200 characters can expand to gigabytes of text (each substitution may double the
text so far), so libstdc++'s `__cxa_demangle` runs in a child process with limits on its memory and
on the CPU time of each name. This file is also the program of that child, so it imports only the
standard library.
"""

import re
import resource
import signal
import sys
from collections.abc import Iterable
from functools import lru_cache

CHILD_MEMORY = 512 << 20
NAME_CPU_S = 0.5
MOST_CHILDREN = 5
CHILD_OUTPUT = 64 << 20
CHILD_WAIT_S, CHILD_CPU_S = 60.0, 10  # libstdc++ demangles about 200,000 names a second
LONGEST = 1 << 16  # bytes of one demangled name; longer ones stay mangled

# Suffixes of gcc for copies and parts of a function (gcc/cgraphclones.cc, clone names).
CLONE = re.compile(r"(\.(cold|part|isra|constprop|lto_priv|localalias|cfi)(\.\d+)*)+$")
BRACKETS = re.compile(r"\[(clone|abi:)[^\]]*\]")
OPERATOR = re.compile(
    r"operator\s*(\(\)|\[\]|<=>|<<=?|>>=?|->\*?|<=?|>=?|(?:new|delete)(?:\[\])?(?![\w]))"
)
PREFIX = re.compile(r"^((non-)?virtual thunk to |covariant return thunk to )+")
TRAILING = re.compile(r"(\s*(const|volatile|noexcept|&&|&))+$")
CONVERSION = re.compile(r"(?:^|::)operator\s+[\w:*& ]+$")
ANONYMOUS = "(anonymous namespace)"


def demangle(names: Iterable[str]) -> dict[str, str]:
    """Return the readable form of each mangled name (those that begin with `_Z`).

    Names that cannot be demangled to at most 64 KiB in half a second are absent, and so are all
    names after the fifth that kills the child, or after ten seconds of its CPU time.
    """
    from native_map.programs import ProgramLimits, answer  # not for the child

    limits = ProgramLimits(CHILD_WAIT_S, CHILD_CPU_S, CHILD_MEMORY, CHILD_OUTPUT)
    mangled = sorted({name for name in names if name.startswith("_Z") and name.isascii()})
    demangled: dict[str, str] = {}
    for _ in range(MOST_CHILDREN):
        if not mangled or not sys.executable:
            break
        try:
            names_in = "\n".join(mangled).encode()
            output = answer([sys.executable, "-I", "-S", __file__], limits, names_in)
        except OSError:
            break
        # A line is complete only if another follows.
        lines = output.out.decode("utf-8", "replace").split("\n")[:-1]
        demangled.update((a, b) for a, b in zip(mangled, lines, strict=False) if b)
        if output.code >= 0 or output.stopped:
            break
        mangled = mangled[len(lines) + 1 :]  # skip the name that killed it
    return demangled


@lru_cache(maxsize=1 << 16)
def short(name: str) -> str:
    """Return a function's name without return type, parameters, template arguments and suffixes.

    >>> short("void at::native::f<float>(at::Tensor const&, int) [clone .cold]")
    'at::native::f'
    """
    if name.startswith(("_Z", "py::", "0x", "[")) or len(name) > LONGEST:
        return name
    text = CLONE.sub("", PREFIX.sub("", BRACKETS.sub("", name)).rstrip())
    if not re.search(r"[(<]|\boperator\b", text):
        return text
    kept = _without_groups(text.replace(ANONYMOUS, "\1"))
    kept = TRAILING.sub("", kept)
    conversion = CONVERSION.search(kept)
    if conversion:
        head = kept[: conversion.start()].rsplit(" ", 1)[-1]
        kept = head + kept[conversion.start() :]
    else:
        kept = kept.strip().rsplit(" ", 1)[-1]
    kept = kept.replace("\1", ANONYMOUS).replace("\2", " ")
    return kept.strip() or name


def _without_groups(text: str) -> str:
    """Return `text` without the contents of (), <> and {}; a lambda becomes `{lambda}`."""
    outside: list[str] = []
    depth = at = 0
    while at < len(text):
        operator = OPERATOR.match(text, at) if text[at] == "o" else None
        if operator and (at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_")):
            if depth == 0:
                outside.append(re.sub(r"\s+", "\2", operator.group()))
            at = operator.end()
            continue
        char = text[at]
        if char in "(<{":
            if depth == 0 and text.startswith("{lambda", at):
                outside.append("{lambda}")
            elif depth == 0 and char == "{":
                outside.append("{unnamed}")
            depth += 1
        elif char in ")>}":
            if not (char == ">" and text[at - 1] == "-"):
                depth = max(depth - 1, 0)
        elif depth == 0:
            outside.append(char)
        at += 1
    return "".join(outside)


def _child() -> None:
    import ctypes

    for what, limit in (
        (resource.RLIMIT_AS, CHILD_MEMORY),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    for library in ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"):
        try:
            function = ctypes.CDLL(library).__cxa_demangle
            break
        except (OSError, AttributeError):
            continue
    else:
        return
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.strnlen.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.strnlen.restype = ctypes.c_size_t
    output_bytes = 0
    out = sys.stdout.buffer
    for name in sys.stdin.buffer.read().split(b"\n"):
        text = b""
        signal.setitimer(signal.ITIMER_VIRTUAL, NAME_CPU_S)  # at its end SIGVTALRM kills
        pointer = function(name, None, None, None)
        if pointer:
            length = libc.strnlen(pointer, LONGEST + 1)
            if length <= LONGEST:
                text = ctypes.string_at(pointer, length).replace(b"\n", b" ")
            libc.free(pointer)
        output_bytes += len(text) + 1
        if output_bytes > CHILD_OUTPUT:
            return
        out.write(text + b"\n")
        out.flush()


if __name__ == "__main__":
    _child()
