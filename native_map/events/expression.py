"""Parses perf's metric expressions into functions of columns, without eval.

Supported: numbers, names, + - * /, parentheses, d_ratio, min and max, and #slots if its value is
given. Conditions, comparisons and events with modifiers are rejected, with the reason.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # choosing events must not wait for numpy
    import numpy as np
    import numpy.typing as npt

Column: TypeAlias = "npt.NDArray[np.float64]"
Columns: TypeAlias = "Mapping[str, Column]"

_DEEPEST = 30
_LONGEST = 4_000
_MOST_STEPS = 400  # also limits the depth of the expression
# A name may hold an escaped minus ("topdown\-retiring").
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d{1,2})?)(?![\w.])"
    r"|(?P<name>[A-Za-z_#](?:[\w.:]|\\+-)*)|(?P<sign>[-+*/(),]))",
    re.ASCII,
)


class ExpressionError(Exception):
    """The expression contains something that this parser does not support."""


@dataclass(frozen=True)
class Expression:
    """`names` are the events that it needs; `value` computes it, NaN if it divides by 0.

    `text` is the expression over these events only, which `read` can parse again; `binds` is the
    precedence of its last operator: 0 for a sum, 1 for a product, 2 for anything else.
    """

    names: frozenset[str]
    value: Callable[[Columns], Column]
    text: str
    binds: int = 2

    def within(self, binds: int) -> str:
        """Return the text, in parentheses if an operator of higher precedence surrounds it."""
        return self.text if self.binds >= binds else f"({self.text})"


def read(
    text: str,
    others: Mapping[str, str],
    constants: Mapping[str, float],
    rename: Callable[[str], str],
) -> Expression:
    """Return the expression of a metric. `others` holds the texts of metrics that it may refer to,
    `rename` gives our name of one of perf's events. Raises ExpressionError."""
    return _ExpressionParser(others, constants, rename).read(text, 0)


class _ExpressionParser:
    def __init__(
        self,
        others: Mapping[str, str],
        constants: Mapping[str, float],
        rename: Callable[[str], str],
    ) -> None:
        self.others = others
        self.constants = constants
        self.rename = rename
        self.steps = 0

    def read(self, text: str, depth: int) -> Expression:
        tokens = _Tokens(text)
        result = self.sum(tokens, depth)
        if tokens.next:
            raise ExpressionError(f"{tokens.next!r} in a metric's expression")
        return result

    def sum(self, tokens: "_Tokens", depth: int) -> Expression:
        left = self.product(tokens, depth)
        while tokens.next in ("+", "-"):
            left = self.both(tokens.take(), left, self.product(tokens, depth))
        return left

    def product(self, tokens: "_Tokens", depth: int) -> Expression:
        left = self.atom(tokens, depth)
        while tokens.next in ("*", "/"):
            left = self.both(tokens.take(), left, self.atom(tokens, depth))
        return left

    def atom(self, tokens: "_Tokens", depth: int) -> Expression:
        self.steps += 1
        if depth > _DEEPEST or self.steps > _MOST_STEPS:
            raise ExpressionError("a metric's expression that refers to itself or is too long")
        kind, token = tokens.kind, tokens.take()
        if token == "-":
            return self.both("*", _number(-1.0), self.atom(tokens, depth + 1))
        if token == "(":
            inside = self.sum(tokens, depth + 1)
            tokens.expect(")")
            return inside
        if kind == "number":
            return _number(float(token))
        if kind != "name":
            raise ExpressionError(f"{token!r} in a metric's expression")
        if tokens.next == "(":
            return self.call(token, tokens, depth + 1)
        return self.named(token, depth)

    def call(self, name: str, tokens: "_Tokens", depth: int) -> Expression:
        if name not in _FUNCTIONS:
            raise ExpressionError(f"{name}() in a metric's expression")
        tokens.expect("(")
        first = self.sum(tokens, depth)
        tokens.expect(",")
        second = self.sum(tokens, depth)
        tokens.expect(")")
        return self.both(name, first, second)

    def named(self, token: str, depth: int) -> Expression:
        name = re.sub(r"\\+", "", token).lower()
        if name in self.constants:
            return _number(self.constants[name])
        if name in self.others:
            return self.read(self.others[name], depth + 1)
        if name.startswith("#") or name in ("if", "else"):
            raise ExpressionError(f"{token} in a metric's expression")
        event = self.rename(name)
        text = event.replace("-", "\\-")  # escaped as in perf; otherwise it would be a difference
        return Expression(frozenset({event}), lambda columns: columns[event], text)

    def both(self, function: str, left: Expression, right: Expression) -> Expression:
        if function in _FUNCTIONS:
            binds, text = 2, f"{function}({left.text}, {right.text})"
        else:
            binds = int(function in ("*", "/"))
            text = f"{left.within(binds)} {function} {right.within(binds + 1)}"
        if len(text) > _LONGEST:
            raise ExpressionError("a metric's expression that is too long")
        return Expression(
            left.names | right.names,
            lambda columns: _combine(function, left.value(columns), right.value(columns)),
            text,
            binds,
        )


def _number(value: float) -> Expression:
    def constant(_: Columns) -> Column:
        import numpy as np

        return np.asarray(value, dtype=np.float64)

    return Expression(frozenset(), constant, repr(value))


_FUNCTIONS = ("d_ratio", "min", "max")


def _combine(function: str, left: Column, right: Column) -> Column:
    import numpy as np

    if function in ("/", "d_ratio"):
        left, right = np.broadcast_arrays(left, right)
        result: Column = np.full(left.shape, np.nan)
        np.divide(left, right, out=result, where=right != 0)
        return result
    simple = {"+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum}
    return np.asarray(simple[function](left, right), dtype=np.float64)


class _Tokens:
    """One token ahead: `next` is its text, "" at the end; `kind` is number, name or sign."""

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise ExpressionError("a metric's expression that is too long")
        self.text = text.rstrip()
        self.at = 0
        self.next = self.kind = ""
        self.take()

    def take(self) -> str:
        taken = self.next
        self.next = self.kind = ""
        if self.at < len(self.text):
            match = _TOKEN.match(self.text, self.at)
            if match is None or match.lastgroup is None:
                raise ExpressionError(
                    f"{self.text[self.at : self.at + 20]!r} in a metric's expression"
                )
            self.next, self.kind, self.at = match[match.lastgroup], match.lastgroup, match.end()
        return taken

    def expect(self, sign: str) -> None:
        if self.take() != sign:
            raise ExpressionError(f"a metric's expression without its {sign!r}")
