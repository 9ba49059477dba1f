"""Changes a plain training script as TraceML's README asks, as little as possible.

`traceml run train.py` alone times steps only if it knows the trainer (Hugging Face, Lightning); of
a plain loop it says "0 completed steps". For those its README adds three lines, which are inserted
here: an import, `traceml.init(mode="auto")`, and `with traceml.trace_step(model):` around the body
of the loop over the loader.
"""

import ast

HEAD = ast.parse('import traceml_ai as traceml\ntraceml.init(mode="auto")').body


class _Wrap(ast.NodeTransformer):
    loops = 0

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if any(isinstance(n, ast.Name) and n.id == "loader" for n in ast.walk(node.iter)):
            self.loops += 1
            step = ast.parse("with traceml.trace_step(model):\n    pass").body[0]
            assert isinstance(step, ast.With)
            step.body = node.body
            node.body = [step]
        return node


def changed(source: str) -> str:
    """Return the script with TraceML's three lines in it.

    Raises ValueError where it has no loop, or more than one, over a variable named `loader`.
    """
    tree = ast.parse(source)
    wrap = _Wrap()
    wrap.visit(tree)
    if wrap.loops != 1:
        raise ValueError(f"{wrap.loops} loops over `loader`, not one")
    past_imports = max(
        place
        for place, node in enumerate(tree.body)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    tree.body[past_imports + 1 : past_imports + 1] = HEAD
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
