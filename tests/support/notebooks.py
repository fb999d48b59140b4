"""Runs the notebooks of examples/ as a kernel does."""

import ast
import json
from typing import Any

from paths import ROOT


def run_notebook(name: str) -> list[Any]:
    """Run all cells in one namespace; return the values of their last expressions, which a kernel shows."""
    namespace: dict[str, Any] = {}
    outputs = []
    for cell in json.loads((ROOT / "examples" / name).read_text())["cells"]:
        if cell["cell_type"] == "code":
            body = ast.parse("".join(cell["source"])).body
            last_statement = body.pop() if isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
            if isinstance(last_statement, ast.Expr):
                outputs.append(eval(compile(ast.Expression(last_statement.value), "cell", "eval"), namespace))
            assert cell["outputs"] == []
    return outputs
