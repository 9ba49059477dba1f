"""The import graph of lotus and native_map in numbers: folders, floors, circles.

    python tools/import_graph.py [CHECKOUT]

Counts every import, also those within functions and those for type checkers only. A floor is a
package that imports only from floors below it; packages of one circle share a floor. CHECKOUT is
another working tree, such as one of an older commit, to compare with.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

PACKAGES = ("lotus", "native_map")
Graph = Mapping[str, set[str]]


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972), largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for below in sorted(graph.get(node, ())):
            if below not in index:
                visit(below)
                low[node] = min(low[node], low[below])
            elif below in stack:
                low[node] = min(low[node], index[below])
        if low[node] == index[node]:
            at = stack.index(node)
            components.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted((circle for circle in components if len(circle) > 1), key=len, reverse=True)


def floors(graph: Graph) -> int:
    """Return the height of the tallest stack of packages; a circle counts as one."""
    room = {node: node for node in graph}
    for circle in circles(graph):
        room.update(dict.fromkeys(circle, circle[0]))
    below: dict[str, set[str]] = defaultdict(set)
    for node, others in graph.items():
        below[room[node]] |= {room[other] for other in others} - {room[node]}
    heights: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in heights:
            heights[node] = 1 + max(map(height, below[node]), default=0)
        return heights[node]

    return max(map(height, list(below)), default=0)


def imports(modules: Iterable[str], graph: grimp.ImportGraph) -> dict[str, set[str]]:
    return {module: graph.find_modules_directly_imported_by(module) for module in modules}


def between_packages(files: Graph, packages: set[str]) -> dict[str, set[str]]:
    """The imports of files as those of the packages that they lie in; `__init__` is its own."""

    def package(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    result: dict[str, set[str]] = {package(module): set() for module in files}
    for module, others in files.items():
        mine = package(module)
        result[mine] |= {package(other) for other in others} - {mine}
    return result


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("checkout", nargs="?", type=Path, default=here, help="default: this one")
    root = parser.parse_args().checkout.resolve()
    sys.setrecursionlimit(10_000)
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    modules = sorted(graph.modules)
    files = imports(modules, graph)
    packages = {module for module in modules if graph.find_children(module)}
    rooms = between_packages(files, packages)
    sizes = Counter(module.rpartition(".")[0] for module in set(modules) - packages)
    print(f"{len(modules)} modules in {len(packages)} packages, {graph.count_imports()} imports")
    listed = ", ".join(f"{name} {count}" for name, count in sizes.most_common(5))
    print(f"files in a folder, the most: {listed}")
    print(f"floors of packages: {floors(rooms)}")
    for what, of in (("packages", rooms), ("files", files)):
        cyclic = circles(of)
        print(f"circles between {what}: {len(cyclic)}")
        for circle in cyclic:
            print(f"  {len(circle)}: {', '.join(circle[:12])}{', ...' * (len(circle) > 12)}")


if __name__ == "__main__":
    main()
