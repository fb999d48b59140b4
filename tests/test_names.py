"""Conventions of names and docstrings: a constant has one value, and the public API is documented."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from inspect import Parameter, cleandoc, getdoc, isfunction, signature
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

import hardmax
from hardmax.sklearn import HardmaxClassifier

PACKAGES = ("evaluation", "hardmax", "model_export", "service")
DOCUMENTED = (hardmax.Client, hardmax.AsyncClient, hardmax.Answer, hardmax.Answers, HardmaxClassifier)
# Docstrings of graph functions are part of the exported graphs: they are those of the released models.
NOT_PROSE = {"model_export/head/functions.py", "model_export/attention/screen.py"}


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of every constant that a module defines."""
    for statement in parse(path).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = getattr(statement.value, "elts", None) if isinstance(target, ast.Tuple) else None
            for name, value in zip(names, values or [statement.value] * len(names), strict=False):
                if isinstance(name, ast.Name) and name.id.isupper() and value is not None:
                    yield name.id, ast.unparse(value)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public_definitions(path: Path) -> Iterator[tuple[str, Definition]]:
    """Yield the public functions, classes and methods of a module, by name."""
    for node in parse(path).body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        yield node.name, node
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name[0] != "_":
                yield f"{node.name}.{member.name}", member


def all_public_definitions() -> Iterator[tuple[str, Definition]]:
    """Yield the public definitions of all packages that need a docstring of their own."""
    exempt = re.compile(r"property|overload|override|script|validator|serializer")
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            for name, node in public_definitions(path) if module not in NOT_PROSE else ():
                if not any(exempt.search(ast.unparse(decorator)) for decorator in node.decorator_list):
                    yield f"{module}: {name}", node


def public_methods(documented_class: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a documented class."""
    for name in dir(documented_class):
        method = getattr(documented_class, name)
        if not name.startswith("_") and isfunction(method) and method.__module__.startswith("hardmax"):
            yield name, method


def test_constant_has_the_same_value_in_all_modules_that_define_it() -> None:
    values: dict[str, dict[str, str]] = defaultdict(dict)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for name, value in constants(path):
                values[name][path.relative_to(ROOT).as_posix()] = value
    assert len(values) > 300
    assert {name: by_module for name, by_module in values.items() if len(set(by_module.values())) > 1} == {}


def test_public_functions_and_classes_have_a_docstring() -> None:
    definitions = list(all_public_definitions())
    assert len(definitions) > 900
    assert [name for name, node in definitions if not ast.get_docstring(node)] == []


def test_docstrings_of_functions_are_imperative() -> None:
    """They begin with "Return the ...", not with "The ..."."""
    noun = re.compile(r"(The|A|An|Whether|What|Which|Who|Whom|How|Where|Of|All|Every|Each|Those)\b")
    functions = [
        (name, node) for name, node in all_public_definitions() if not isinstance(node, ast.ClassDef)
    ]
    assert [name for name, node in functions if noun.match(ast.get_docstring(node) or "")] == []


@pytest.mark.parametrize("documented_class", DOCUMENTED, ids=lambda item: item.__name__)
def test_documented_methods_describe_their_arguments(documented_class: type) -> None:
    undocumented = []
    for name, method in public_methods(documented_class):
        arguments = cleandoc(getdoc(method) or "").partition("Args:")[2]
        parameters = [p for p in signature(method).parameters.values() if p.name != "self"]
        if len(parameters) > 1 and "The parameters are those of" not in (getdoc(method) or ""):
            undocumented += [
                f"{name}({parameter.name})"
                for parameter in parameters
                if parameter.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
                and not re.search(rf"^\s+(\w+, )*{parameter.name}(, \w+)*:", arguments, re.M)
            ]
    assert undocumented == []
