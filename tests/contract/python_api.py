"""The public Python names: classes, methods, parameters with their defaults, fields, the tree of errors."""

import inspect
import re
from pathlib import Path

from pydantic import BaseModel

import hardmax

FILE = Path(__file__).parent / "python_api.txt"


def lines() -> list[str]:
    """Describe every public name of the package `hardmax`."""
    found = []
    for name in sorted(hardmax.__all__):
        if name == "__version__":
            continue
        value = getattr(hardmax, name)
        if not inspect.isclass(value):
            found += [name + parameters(value), ""]
        elif issubclass(value, Exception):
            found += [f"{name}({value.__mro__[1].__name__}){parameters(value.__init__)}", ""]
        else:
            construct = value if issubclass(value, BaseModel) else value.__init__
            found += [name + parameters(construct), *members(value), ""]
    return found


def members(kind: type) -> list[str]:
    """Describe the fields, properties and methods of a class that are not those of a builtin type."""
    names = set(dir(kind)) - set(dir(list)) - set(dir(BaseModel))
    names |= set(getattr(kind, "model_fields", {}))
    found = []
    for name in sorted(name for name in names if not name.startswith("_")):
        value = inspect.getattr_static(kind, name, None)
        value = getattr(value, "__func__", value)
        found.append(f"    {name}{parameters(value)}" if callable(value) else f"    {name}")
    return found


def parameters(function: object) -> str:
    """Return the parameters of a function without their types."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    bare = [
        each.replace(annotation=each.empty) for name, each in signature.parameters.items() if name != "self"
    ]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return re.sub(r"<function .*?>", "<function>", text.replace("<lambda>", "lambda"))
