"""ADaPT, the search over AVL trees of Ryu, Piao, Park, Synn and Kim (2024), as published.

Each parameter has an AVL tree, built by inserting its values in ascending order (the paper's
section 3.3). The trees have priorities: "AVL tree with lower priority sends the value of currently
selected node to the root node of the AVL tree with higher priority". At the highest priority the
accumulated values are measured. A node's children are evaluated "in the same way". The search
descends to the fastest child; it ends when no child is faster than the node, or at a leaf.

The paper leaves some choices open. This implementation resolves them as follows:

- The searches are nested: each node visited in one tree runs a whole search of all trees of higher
  priority, from their roots. The text implies this ("in the same way", "returns the measured time
  and parameter combination"), and so does its O((log N)^k). Only nesting gives the paper's 7 to 19
  times fewer trials than the grid on its ranges: 36 to 308 of 1,584 settings. Searching one tree
  after the other could never need as few as 36.
- The result of a search goes back to the tree of lower priority that started it. The text says "to
  higher priority AVL tree", but ends when "the lowest priority AVL tree returns".
- "Higher priority is given to more frequently searched trees" is circular, since the innermost
  tree is searched most. Here num_workers has the highest priority, then prefetch_factor,
  pin_memory, persistent_workers (the paper's order), then the parameters that the paper does not
  have, if the space varies them. `priorities` sets another order.
- If a child is only as fast as its parent, the parent is kept; of two equal children the smaller
  value is taken, because it is cheaper.
- The paper does not mention failed trials. They count as slower than any other; if a node and its
  children all fail, the search of that tree ends.
- Values without a natural order, such as start methods, keep the order of the space.
- Measurements are remembered: at 0 workers, which the paper's ranges do not include, all prefetch
  factors are one setting and measured once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.settings.space import LOADER_PARAMETERS, Measurement, Setting, Space, Value
from lotus.tune.strategies import avl_tree
from lotus.tune.strategies.stepwise import Remembering, Steps

Search = Generator[tuple[Setting, str], Measurement, Measurement]


@dataclass(frozen=True)
class Tree:
    """The tree of one parameter; its nodes hold indices into `values`, which ascend."""

    parameter: str
    values: tuple[Value, ...]
    root: avl_tree.Node

    @classmethod
    def of(cls, space: Space, parameter: str) -> Tree:
        """Make the tree of a parameter's values."""
        values = space.values(parameter)
        if parameter == "prefetch_factor":
            values = tuple({TORCH_PREFETCH if value is None else value for value in values})
        numbers = [value for value in values if isinstance(value, int)]
        if len(numbers) == len(values):
            values = tuple(sorted(numbers))
        return cls(parameter, values, avl_tree.tree(range(len(values))))

    def value(self, node: avl_tree.Node) -> Value:
        """Return the value at a node."""
        return self.values[node.value]


class Adapt(Remembering):
    """The paper's search; `priorities` names the parameters, highest priority first."""

    name = "adapt"

    def __init__(self, space: Space, priorities: Sequence[str] = LOADER_PARAMETERS) -> None:
        if sorted(priorities) != sorted(LOADER_PARAMETERS):
            raise ValueError(f"priorities must name each of {', '.join(LOADER_PARAMETERS)} once")
        self.trees = tuple(Tree.of(space, name) for name in reversed(priorities))
        self._size = space.size()
        super().__init__(self._whole())

    def _whole(self) -> Steps:
        result = yield from _search(self.trees, {}, ())
        counted = f"{len(self._measured)} of {self._size} combinations are measured"
        if result.failed:
            return f"{counted}: all failed, so everything below them in the trees is ruled out"
        return f"{counted}: the others are ruled out by a slower setting above them in a tree"


def _search(trees: Sequence[Tree], chosen: dict[str, Any], why: tuple[str, ...]) -> Search:
    """Descend the trees and return the fastest; the first tree has the lowest priority."""
    if not trees:
        return (yield Setting(**chosen), "; ".join(why) or "the only setting of the space")
    tree, higher = trees[0], trees[1:]

    def visit(node: avl_tree.Node, role: str) -> Search:
        """Search the trees of higher priority with this node's value."""
        value = tree.value(node)
        words = (f"{tree.parameter} {value} ({role})",) if len(tree.values) > 1 else ()
        return _search(higher, {**chosen, tree.parameter: value}, (*words, *why))

    node, ruled_out = tree.root, ""
    best = yield from visit(node, "the root of its tree")
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
