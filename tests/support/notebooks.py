"""Notebooks of examples/, run as a kernel runs them."""

import ast
import json
from typing import Any

from paths import ROOT


def shown_by(name: str) -> list[Any]:
    """Run every cell in one namespace; return the last expression of each, which is shown."""
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads((ROOT / "examples" / name).read_text())["cells"]:
        if cell["cell_type"] == "code":
            body = ast.parse("".join(cell["source"])).body
            last = body.pop() if isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
            assert cell["outputs"] == []
    return shown
