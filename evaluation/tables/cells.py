"""Values as cells of files that hold texts."""

import json
import math
import re
from typing import Any

from evaluation.tables.text import FORMULA_MARKS, TextFormat

# A number, an amount or a telephone number: no formula, though it may begin with a sign.
HARMLESS = re.compile(r"[+-][\d.,'\s]*\d[\d.,'\s]*(e[+-]?\d+|[%€$£])?", re.IGNORECASE)


def as_text(value: Any) -> str:
    """Return a value as text: a list of texts by semicolons, other nested values as JSON."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "; ".join(value)
    is_nested = isinstance(value, list | dict | bool)
    return json.dumps(value, ensure_ascii=False, default=str) if is_nested else str(value)


def as_csv_cell(value: Any, text_format: TextFormat) -> str:
    """Return a value as a cell of csv. A text that a spreadsheet would take for a formula begins with '."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value).replace(".", "," if text_format.decimal_comma else ".")
    text = as_text(value)
    is_formula = text[:1] in FORMULA_MARKS and text != "" and not HARMLESS.fullmatch(text)
    return f"'{text}" if is_formula else text


def as_json(value: Any) -> Any:
    """Return a value without NaN and infinities, which JSON lacks: null in their place."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(as_json, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value
