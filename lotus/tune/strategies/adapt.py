"""ADaPT, the search over AVL trees of Ryu, Piao, Park, Synn and Kim (2024), to the letter.

Each parameter has an AVL tree, built by inserting its values in ascending order (the paper's
section 3.3). The trees have priorities: "AVL tree with lower priority sends the value of currently
selected node to the root node of the AVL tree with higher priority", until the highest, where the
accumulated values are measured. A node's children are determined "in the same way"; the search
goes down to the fastest of a node and its children, and ends where that is the node itself or
there is nothing below.

Where the text leaves a choice, the reading taken here and why:

- The searches are nested: a node visited in one tree runs a whole search of all trees of higher
  priority, from their roots. The text says so ("in the same way", "returns the measured time and
  parameter combination"), its O((log N)^k) asks for it, and on the paper's ranges only this gives
  its 7 to 19 times fewer trials than the grid: 36 to 308 of 1,584 are possible then, and one tree
  after the other would never try 36.
- A search's result goes back to the tree of lower priority that started it. The text says "to
  higher priority AVL tree", but ends when "the lowest priority AVL tree returns".
- "Higher priority is given to more frequently searched trees" defines itself by its result: the
  innermost tree is searched most. num_workers has the highest priority here, then prefetch_factor,
  pin_memory, persistent_workers (the order in which the paper names them) and, where the space
  varies them, those that the paper does not have. `priorities` takes another order.
- Equally fast: the parent is kept, as only a better child is worth a descent; of two children the
  smaller value, which is cheaper.
- A trial that failed, of which the paper says nothing, is slower than any other. Where a node and
  its children all fail, the search of that tree ends there.
- Values without an order of their own, such as start methods, stand in the order of the space.
- What was measured is remembered: at 0 workers, which the paper's ranges do not have, all prefetch
  factors are one setting and measured once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from lotus.settings.space import PARAMETERS, TORCH_PREFETCH, Measurement, Setting, Space, Value
from lotus.tune.strategies import avl_tree
from lotus.tune.strategies.stepwise import Remembering, Steps

Search = Generator[tuple[Setting, str], Measurement, Measurement]


@dataclass(frozen=True)
class Tree:
    """The tree of one parameter: its nodes hold positions in `values`, which ascend."""

    parameter: str
    values: tuple[Value, ...]
    root: avl_tree.Node

    @classmethod
    def of(cls, space: Space, parameter: str) -> Tree:
        """The tree over the values of a parameter, in their order."""
        values = space.values(parameter)
        if parameter == "prefetch_factor":
            values = tuple({TORCH_PREFETCH if value is None else value for value in values})
        numbers = [value for value in values if isinstance(value, int)]
        if len(numbers) == len(values):
            values = tuple(sorted(numbers))
        return cls(parameter, values, avl_tree.tree(range(len(values))))

    def value(self, node: avl_tree.Node) -> Value:
        """The value at a node."""
        return self.values[node.value]


class Adapt(Remembering):
    """The search of the paper; `priorities` names the parameters, the highest priority first."""

    name = "adapt"

    def __init__(self, space: Space, priorities: Sequence[str] = PARAMETERS) -> None:
        if sorted(priorities) != sorted(PARAMETERS):
            raise ValueError(f"priorities must name each of {', '.join(PARAMETERS)} once")
        self.trees = tuple(Tree.of(space, name) for name in reversed(priorities))
        self._size = space.size()
        super().__init__(self._whole())

    def _whole(self) -> Steps:
        result = yield from _search(self.trees, {}, ())
        counted = f"{len(self._measured)} of {self._size} combinations are measured"
        if result.failed:
            return f"{counted}: all failed, and what is below them in the trees is ruled out"
        return f"{counted}: the others are ruled out, as a setting above them in a tree was slower"


def _search(trees: Sequence[Tree], chosen: dict[str, Any], why: tuple[str, ...]) -> Search:
    """The fastest that descending the trees finds; the first tree has the lowest priority."""
    if not trees:
        return (yield Setting(**chosen), "; ".join(why) or "the space has no other")
    tree, higher = trees[0], trees[1:]

    def visit(node: avl_tree.Node, role: str) -> Search:
        """The whole search of the trees above, this node's value handed to them."""
        value = tree.value(node)
        words = (f"{tree.parameter} {value} ({role})",) if len(tree.values) > 1 else ()
        return _search(higher, {**chosen, tree.parameter: value}, (*words, *why))

    node, ruled_out = tree.root, ""
    best = yield from visit(node, "its tree's root")
    while True:
        fastest = None
        for child in node.children():
            side = "below" if child is node.left else "above"
            result = yield from visit(child, f"{side} {tree.value(node)}{ruled_out}")
            if result.samples_per_s > best.samples_per_s:
                best, fastest = result, child
        if fastest is None:
            return best
        side = "higher" if fastest is node.left else "lower"
        ruled_out = f", {tree.value(node)} and {side} ruled out"
        node = fastest
