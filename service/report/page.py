"""The report as one HTML page that needs nothing else: to be sent to a colleague."""

from html import escape
from typing import Any

from service.report.figures import percent

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
body { color: #1c1f26; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 2rem }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #d8dbe2 }
th:first-child, td:first-child, td.text { text-align: left }
.bar { display: inline-block; height: .7rem; background: #4c6ef5; vertical-align: middle }
.big { font-size: 2.2rem; font-weight: 600 }
.note { color: #5a6070 }
mark { background: #dbe4ff; padding: 0 .2rem }
@media (prefers-color-scheme: dark) {
  body { background: #14161b; color: #e6e8ee } th, td { border-color: #333843 }
  mark { background: #2b3a67; color: inherit } .note { color: #a0a6b4 }
}
"""


def page(report: dict[str, Any]) -> str:
    """The whole document. What stands in rows is escaped."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(report['title'])}</title><style>{STYLE}</style><h1>{escape(report['title'])}</h1>",
        f"<p class=note>{escape(report['source'])}</p>",
    ]
    for name, found in report["models"].items():
        parts += _model(name, found)
    if report.get("linear") is not None:
        parts.append(
            "<p class=note>TF-IDF with logistic regression, learnt from other folds: "
            f"{report['linear']:.1%}</p>"
        )
    parts += [f"<p class=note>Warning: {escape(warning)}</p>" for warning in report.get("warnings", [])]
    return "\n".join(parts) + "\n"


def _model(name: str, found: dict[str, Any]) -> list[str]:
    low, high = found["interval"]
    reasons = found["undecided"].items()
    undecided = "".join(f"; {number:,} undecided: {escape(reason)}" for reason, number in reasons)
    labels = []
    for each in found["labels"]:
        shares = percent(each["precision"]), percent(each["recall"])
        labels.append([each["label"], f"{each['rows']:,}", f"{each['said']:,}", *shares])
    parts = [
        f"<h2>{escape(name)}</h2><p><span class=big>{found['accuracy']:.1%}</span> of "
        f"{found['rows']:,} rows right "
        f"(95 %: {low:.1%} to {high:.1%}); balanced {found['balanced_accuracy']:.1%}; "
        f"the most frequent label alone {found['most_frequent_label']:.1%}{undecided}</p>",
        _table(["label", "rows", "said", "precision", "recall"], labels),
    ]
    if "confusion" in found:
        names = [each["label"] for each in found["labels"]]
        rows = [[true, *map(str, row)] for true, row in zip(names, found["confusion"], strict=True)]
        parts += ["<h3>Rows of a label (down), said to be (across)</h3>", _table(["", *names], rows)]
    bars = [
        f"<tr><td>{each['said']:.0%}<td>{each['right']:.0%}<td>{each['rows']:,}<td class=text>"
        f"<span class=bar style='width:{100 * each['right']:.0f}px'></span></tr>"
        for each in found["calibration"]["bins"]
    ]
    head = "<tr><th>probability<th>right<th>rows<th></tr>"
    parts.append(
        "<h3>Calibration: off by "
        f"{found['calibration']['error']:.1%}</h3><table>{head}{''.join(bars)}</table>"
    )
    for title, field in (("Worst errors", "worst"), ("Rows that look mislabelled", "mislabelled")):
        if found[field]:
            parts += [f"<h3>{title}</h3>", _examples(found[field])]
    return parts


def _examples(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        led = " ".join(f"<mark>{escape(word)}</mark>" for word in row["leaders"])
        true, said = escape("|".join(row["truth"])) or "-", escape("|".join(row["said"])) or "-"
        lines.append(
            f"<tr><td>{true}<td>{said} {row['score']:.0%}<td "
            f"class=text>{escape(row['text'][:600])}<br>{led}</tr>"
        )
    return f"<table><tr><th>label<th>said<th>text, leaders</tr>{''.join(lines)}</table>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = ["".join(f"<td>{escape(cell)}" for cell in row) for row in rows]
    names = "".join(f"<th>{escape(name)}" for name in head)
    return f"<table><tr>{names}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
