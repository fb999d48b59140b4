"""Describes the public Python names: classes, methods, fields, parameters with defaults, and base errors."""

import inspect
import re
from pathlib import Path

from pydantic import BaseModel

import hardmax

FILE = Path(__file__).parent / "python_api.txt"


def describe_lines() -> list[str]:
    """Describe every public name of the package `hardmax`."""
    lines = []
    for name in sorted(hardmax.__all__):
        if name == "__version__":
            continue
        value = getattr(hardmax, name)
        if not inspect.isclass(value):
            lines += [name + parameters(value), ""]
        elif issubclass(value, Exception):
            lines += [f"{name}({value.__mro__[1].__name__}){parameters(value.__init__)}", ""]
        else:
            construct = value if issubclass(value, BaseModel) else value.__init__
            lines += [name + parameters(construct), *members(value), ""]
    return lines


def members(class_: type) -> list[str]:
    """Describe the fields, properties and methods of a class that are not those of a builtin type."""
    names = set(dir(class_)) - set(dir(list)) - set(dir(BaseModel))
    names |= set(getattr(class_, "model_fields", {}))
    lines = []
    for name in sorted(name for name in names if not name.startswith("_")):
        value = inspect.getattr_static(class_, name, None)
        value = getattr(value, "__func__", value)
        lines.append(f"    {name}{parameters(value)}" if callable(value) else f"    {name}")
    return lines


def parameters(function: object) -> str:
    """Return the parameters of a function without their types."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    untyped = [p.replace(annotation=p.empty) for name, p in signature.parameters.items() if name != "self"]
    text = str(signature.replace(parameters=untyped, return_annotation=signature.empty))
    return re.sub(r"<function .*?>", "<function>", text.replace("<lambda>", "lambda"))
