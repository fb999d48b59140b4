"""Names in the code: one constant has one meaning."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

PACKAGES = ("evaluation", "hardmax", "model_export", "service")


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of every constant that a module defines."""
    for statement in ast.parse(path.read_text()).body:
        targets = (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
            if isinstance(statement, ast.AnnAssign)
            else []
        )
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = getattr(statement.value, "elts", None) if isinstance(target, ast.Tuple) else None
            for name, value in zip(names, values or [statement.value] * len(names), strict=False):
                if isinstance(name, ast.Name) and name.id.isupper() and value is not None:
                    yield name.id, ast.unparse(value)


def test_constant_has_the_same_value_in_all_modules_that_define_it() -> None:
    values: dict[str, dict[str, str]] = defaultdict(dict)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for name, value in constants(path):
                values[name][path.relative_to(ROOT).as_posix()] = value
    assert len(values) > 300
    assert {name: where for name, where in values.items() if len(set(where.values())) > 1} == {}
