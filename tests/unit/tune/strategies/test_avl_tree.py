"""The trees of the paper: balanced, sorted, rooted where it says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.tune.strategies import avl_tree
from lotus.tune.strategies.adapt import Adapt
from tests.unit.benches import bench


def height(node: avl_tree.Node | None) -> int:
    """Recounted, each node checked on the way."""
    if node is None:
        return 0
    left, right = height(node.left), height(node.right)
    assert abs(left - right) <= 1
    assert node.height == 1 + max(left, right)
    return node.height


@given(st.lists(st.integers(-50, 50), min_size=1))
def test_any_order_of_insertion_gives_a_balanced_search_tree(values: list[int]) -> None:
    root = avl_tree.tree(values)
    assert list(root) == sorted(set(values))
    assert height(root) <= 1.4405 * math.log2(len(set(values)) + 2)  # Knuth, vol. 3, 6.2.3


@given(st.lists(st.integers(-50, 50), min_size=1), st.integers(-50, 50))
def test_inserting_leaves_the_tree_as_it_was(values: list[int], value: int) -> None:
    root = avl_tree.tree(values)
    larger = avl_tree.insert(root, value)
    assert list(root) == sorted(set(values))
    assert list(larger) == sorted({*values, value})
    assert (larger == root) == (value in values)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (1, 3, 2), (3, 1, 2)])
def test_each_of_the_four_rotations_balances(order: tuple[int, ...]) -> None:
    assert avl_tree.tree(order) == avl_tree.Node(2, avl_tree.Node(1), avl_tree.Node(3), height=2)


def test_a_tree_needs_a_value() -> None:
    with pytest.raises(ValueError, match="needs a value"):
        avl_tree.tree([])


def test_the_papers_trees_are_rooted_at_30_128_0_0() -> None:
    trees = {tree.parameter: tree for tree in Adapt(bench("tune.paper").SPACE).trees}
    roots = {name: (tree.value(tree.root), height(tree.root)) for name, tree in trees.items()}
    assert roots == {
        "num_workers": (30, 6),
        "prefetch_factor": (128, 4),
        "pin_memory": (False, 2),
        "persistent_workers": (False, 2),
        "start_method": (None, 1),
        "in_order": (None, 1),
        "threads": (None, 1),
    }
    root = trees["num_workers"].root
    assert [trees["num_workers"].value(node) for node in root.children()] == [14, 46]
