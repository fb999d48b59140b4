"""The directive `openapi-fields SCHEMA`: a table of the fields of a schema in docs/openapi.json."""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCUMENT = Path(__file__).parent.parent / "openapi.json"


def type_name(schema: dict[str, Any]) -> str:
    """Return the type of a field as a reader would write it."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if variants := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(dict.fromkeys(map(type_name, variants)))
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema.get("type") == "array":
        return f"list of {type_name(schema.get('items', {}))}"
    if values := schema.get("additionalProperties"):
        return f"object of {type_name(values)}" if isinstance(values, dict) else "object"
    return schema.get("type", "any")


class OpenAPIFields(SphinxDirective):
    """Render one row per field: name, type, description."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DOCUMENT))
        schema = json.loads(DOCUMENT.read_text())["components"]["schemas"][self.arguments[0]]
        rows = [
            f"| `{name}` | {type_name(field)} | {field.get('description', '')} |".replace("\n", " ")
            for name, field in schema["properties"].items()
        ]
        table = ["| field | type | meaning |", "|---|---|---|", *rows]
        container = nodes.container()
        self.state.nested_parse(StringList(table, source=str(DOCUMENT)), self.content_offset, container)
        return [container]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("openapi-fields", OpenAPIFields)
    return {"parallel_read_safe": True}
