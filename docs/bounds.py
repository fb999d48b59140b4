"""Write the table of docs/reference/bounds.md from the OpenAPI document: `python docs/bounds.py`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/openapi.json"
PAGE = ROOT / "docs/reference/bounds.md"
BEGIN, END = "<!-- bounds: written by docs/bounds.py -->\n", "<!-- end of bounds -->\n"

Schema = dict[str, Any]


def rows(document: Schema) -> Iterator[tuple[str, str, str]]:
    """Yield the route, the field and the bound of every text, list and object in a JSON request."""
    for path, operations in document["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref")
        if reference and "/versions/" not in path:
            for field, bound in fields(document, resolve(document, {"$ref": reference})):
                if bound:
                    yield path, field, bound


def resolve(document: Schema, schema: Schema) -> Schema:
    """Follow a reference to the schema that it names."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def fields(document: Schema, schema: Schema, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each field of an object, those of objects in it too, with its bound."""
    for name, field in schema["properties"].items():
        yield f"{prefix}{name}", bound_of(document, field)
        for inner in objects_in(document, field):
            yield from fields(document, inner, f"{prefix}{name}.")


def objects_in(document: Schema, schema: Schema) -> Iterator[Schema]:
    """Yield the objects with named fields that a field holds."""
    schema = resolve(document, schema)
    if "properties" in schema:
        yield schema
    for variant in (*schema.get("anyOf", ()), *filter(None, [schema.get("items")])):
        yield from objects_in(document, variant)


def bound_of(document: Schema, field: Schema) -> str:
    """Return the bound of a field in words; "unbounded" if a part has none, "" for one number or name."""
    limits = ", ".join(f"`{name}`" for name in field.get("x-limits", ()))
    parts = list(dict.fromkeys(filter(None, _parts(document, field, limited=bool(limits)))))
    return ", ".join(filter(None, [limits, *parts]))


def _parts(document: Schema, schema: Schema, limited: bool) -> Iterator[str]:
    schema = resolve(document, schema)
    for variant in schema.get("anyOf", ()):
        yield from _parts(document, variant, limited)
    kind, missing = schema.get("type"), "" if limited else "unbounded"
    if kind == "string" and "enum" not in schema and "const" not in schema:
        yield f"{schema['maxLength']:,} characters" if "maxLength" in schema else missing
    elif kind == "array":
        yield f"{schema['maxItems']:,} entries" if "maxItems" in schema else missing
        yield from _parts(document, schema.get("items", {}), limited)
    elif kind == "object" and "properties" not in schema:
        yield f"{schema['maxProperties']:,} members" if "maxProperties" in schema else missing


def table(document: Schema) -> str:
    """Return the table; fields with the same bound in several routes are one row."""
    routes: dict[tuple[str, str], list[str]] = {}
    for path, field, bound in rows(document):
        routes.setdefault((field, bound), []).append(f"`{path}`")
    lines = ["| field | at most | of |", "|---|---|---|"]
    lines += [f"| `{field}` | {bound} | {', '.join(paths)} |" for (field, bound), paths in routes.items()]
    return "\n".join(lines) + "\n"


def page(text: str, document: Schema) -> str:
    """Return the page with a new table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table(document) + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), json.loads(DOCUMENT.read_text())))
