"""AVL trees (Adelson-Velsky and Landis, 1962): subtrees differ in height by at most one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A value, with smaller values in its left subtree and larger ones in its right subtree.

    Nodes are immutable: insertion makes new nodes along the path and shares the others.
    """

    value: int
    left: Node | None = None
    right: Node | None = None
    height: int = 1  # nodes on the longest path down, including this one

    def children(self) -> tuple[Node, ...]:
        """Return the nodes below, at most two, the smaller first."""
        return tuple(child for child in (self.left, self.right) if child is not None)

    def __iter__(self) -> Iterator[int]:
        """Yield the values of the tree in ascending order."""
        if self.left is not None:
            yield from self.left
        yield self.value
        if self.right is not None:
            yield from self.right


def insert(root: Node | None, value: int) -> Node:
    """Return the tree with `value` added; an equal tree if it has the value already."""
    if root is None:
        return Node(value)
    if value == root.value:
        return root
    if value < root.value:
        return _balanced(root.value, insert(root.left, value), root.right)
    return _balanced(root.value, root.left, insert(root.right, value))


def tree(values: Iterable[int]) -> Node:
    """Make a tree by inserting the values in order. Raises ValueError without a value."""
    root: Node | None = None
    for value in values:
        root = insert(root, value)
    if root is None:
        raise ValueError("a tree needs a value")
    return root


def _height(node: Node | None) -> int:
    return 0 if node is None else node.height


def _node(value: int, left: Node | None, right: Node | None) -> Node:
    return Node(value, left, right, 1 + max(_height(left), _height(right)))


def _balanced(value: int, left: Node | None, right: Node | None) -> Node:
    """Join two AVL trees whose heights differ by at most two, rotating if they do by two."""
    if left is not None and _height(left) > _height(right) + 1:
        inner = left.right
        if inner is not None and _height(inner) > _height(left.left):
            lower = _node(left.value, left.left, inner.left)
            return _node(inner.value, lower, _node(value, inner.right, right))
        return _node(left.value, left.left, _node(value, inner, right))
    if right is not None and _height(right) > _height(left) + 1:
        inner = right.left
        if inner is not None and _height(inner) > _height(right.right):
            upper = _node(right.value, inner.right, right.right)
            return _node(inner.value, _node(value, left, inner.left), upper)
        return _node(right.value, _node(value, left, inner), right.right)
    return _node(value, left, right)
