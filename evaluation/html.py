"""A report as one HTML page without external resources, in the style of the service's page."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from evaluation.plot import to_svg
from evaluation.report import describe_abstentions, describe_comparison, percent, row_name
from hardmax.errors import InvalidInput
from hardmax.formatting import printable

STYLE = """
:root { color-scheme: light dark; --paper: light-dark(#f8f6f1, #121417); --card: light-dark(#fffefb, #191c21);
  --ink: light-dark(#1c1d22, #ece9e2); --soft: light-dark(#5d5c62, #a5a8b0);
  --line: light-dark(#ddd8cc, #343943);
  --pos: light-dark(#1765a8, #6fb4f5); --neg: light-dark(#b8480c, #ff9b5e);
  --serif: Newsreader, "Iowan Old Style", Georgia, serif;
  --sans: Inter, system-ui, "Helvetica Neue", sans-serif }
* { box-sizing: border-box } body { margin: 0; background: var(--paper); color: var(--ink);
  font: 400 15px/1.5 var(--sans) }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem }
h1, h2, h3 { font-family: var(--serif); font-weight: 500; line-height: 1.2; margin: 0 }
h1 { font-size: 2.2rem } h2 { font-size: 1.5rem } h3 { font-size: 1.15rem; margin: 2rem 0 .5rem }
.soft { color: var(--soft); font-size: 13px }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.5rem;
  margin: 1.5rem 0 }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 1.25rem 1.5rem;
  margin: 1rem 0 1.5rem }
.figure b { display: block; font: 500 2.2rem/1.1 var(--serif) }
.compared b { color: var(--soft) }
table { border-collapse: collapse; width: 100% } .scroll { overflow-x: auto }
th, td { padding: .35rem .75rem; text-align: right; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; vertical-align: top }
th { font-weight: 500; color: var(--soft); font-size: 13px }
th:first-child, td:first-child, .text { text-align: left }
.warning { border-left: 3px solid var(--neg); padding-left: .75rem; margin: .5rem 0 }
mark { background: none; color: var(--pos); font-weight: 500; margin-right: .5em }
svg { min-width: 46rem; max-width: 100%; height: auto; display: block }
svg text { fill: var(--ink) } svg path[style*="#000000"] { stroke: var(--ink) !important }
.text { min-width: 9rem } .text + .text { min-width: 16rem }
@media (max-width: 30rem) { section { padding: 1rem } th, td { padding: .35rem .25rem; font-size: 13px } }
@media print { @page { margin: 16mm } :root { color-scheme: light } body, section { background: #fff }
  body { font-size: 12px }
  main { padding: 0; max-width: none }
  section { border: 0; padding: 0 } h3, tr, svg { break-inside: avoid } h3 { break-after: avoid }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact } }
"""


MAX_LISTED = 100  # rows where two models differ


def render_report(report: dict[str, Any]) -> str:
    """Return the HTML document. Texts are escaped, control characters replaced."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>{escape(report['title'])}</title><style>{STYLE}</style>",
        f"<main><h1>{escape(report['title'])}</h1><p class=soft>{escape(report['source'])}</p>",
        *(f"<p class=warning>{escape(warning)}</p>" for warning in report.get("warnings", [])),
    ]
    for name, metrics in report["models"].items():
        parts += ["<section>", *([f"<h2>{escape(name)}</h2>"] if len(report["models"]) > 1 else [])]
        parts += [*_model(metrics, report.get("baseline")), "</section>"]
    if comparison := report.get("comparison"):
        parts += [
            "<section><h2>Rows where the two differ</h2>",
            f"<p>{escape(describe_comparison(comparison))}</p>",
        ]
        parts += [_predictions(comparison["differing"][:MAX_LISTED]), "</section>"]
    if errors := report.get("label_errors"):
        note = "A model that was not trained on these rows predicts another label with confidence."
        parts += ["<section><h2>Rows that look mislabelled</h2>", f"<p class=soft>{note}</p>"]
        parts += [_predictions(errors), "</section>"]
    return printable("\n".join([*parts, "</main>"])) + "\n"


def write_page(path: Path, page: str) -> None:
    """Write a page to a file.

    Raises:
        InvalidInput: the file cannot be written.
    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}", param="--html") from None


def _model(metrics: dict[str, Any], baseline: dict[str, Any] | None) -> Iterator[str]:
    low, high = metrics["interval"]
    interval = f"accuracy on {metrics['rows']:,} rows (95 % interval {percent(low)} to {percent(high)})"
    yield "<div class=figures>"
    yield _figure(metrics["accuracy"], interval)
    if baseline:
        yield _figure(baseline["accuracy"], f"{baseline['name']}, {baseline['source']}", "compared")
    yield _figure(metrics["majority_class"], "most frequent label", "compared")
    yield _figure(metrics["balanced_accuracy"], "balanced accuracy")
    yield "</div>"
    if metrics["abstained"]:
        yield f"<p>{escape(describe_abstentions(metrics)).capitalize()}.</p>"
    names = ["label", "rows", "predicted", "precision", "recall"]
    shown = [{**row, **{name: percent(row[name]) for name in names[3:]}} for row in metrics["labels"]]
    lines = ["".join(f"<td>{escape(str(row[name]))}" for name in names) for row in shown]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    yield f"<div class=scroll><table><tr>{''.join(f'<th>{name}' for name in names)}</tr>{body}</table></div>"
    yield f"<h3>Calibration: error {percent(metrics['calibration']['error'])}</h3>"
    yield f"<div class=scroll>{to_svg(metrics)}</div>"
    if metrics["errors"]:
        yield f"<h3>Errors, the most confident first: {metrics['error_count']:,}</h3>"
        yield _predictions(metrics["errors"])


def _figure(share: float, caption: str, kind: str = "") -> str:
    return (
        f"<div class='figure {kind}'><b>{percent(share)}</b><span class=soft>{escape(caption)}</span></div>"
    )


def _predictions(predictions: Sequence[dict[str, Any]]) -> str:
    rows = []
    for row in predictions:
        leaders = "".join(f"<mark>{escape(word)}</mark>" for word in row["leaders"])
        true, predicted = ("|".join(row[name]) or "-" for name in ("truth", "predicted"))
        other = f"; the other {'|'.join(row['other']) or '-'}" if "other" in row else ""
        text = f"{escape(row['text'][:600])}{'<br>' if leaders else ''}{leaders}"
        label = f"<td>{escape(row_name(row))}<td class=text>{escape(true)}"
        predicted = f"<td class=text>{escape(predicted)} {row['score']:.0%}{escape(other)}"
        rows.append(f"<tr>{label}{predicted}<td class=text>{text}</tr>")
    head = "<tr><th>row<th class=text>label<th class=text>predicted<th class=text>text, leaders</tr>"
    return f"<div class=scroll><table>{head}{''.join(rows)}</table></div>"
