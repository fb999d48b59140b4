"""A report as lines of text: metrics of one or several models with the baseline, errors and warnings."""

from collections.abc import Iterator
from typing import Any

from hardmax.formatting import shorten

# A report is a JSON value:
#   title, source               the models, and the rows
#   models                      metrics by name (metrics.evaluate)
#   baseline                    {"name", "accuracy", "source"} or null
#   label_errors                rows that look mislabelled; only in reports of training
#   warnings                    sentences


def describe_report(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report."""
    for name, metrics in report["models"].items():
        yield from _describe_model(name, metrics)
    first = next(iter(report["models"].values()))
    compared = [f"{percent(first['majority_class'])} by always predicting the most frequent label"]
    if baseline := report.get("baseline"):
        compared.append(f"{percent(baseline['accuracy'])} by {baseline['name']} ({baseline['source']})")
    yield f"  for comparison: {', '.join(compared)}"
    yield ""
    yield f"{'label':24} {'rows':>7} {'precision':>10} {'recall':>8}"
    for label in first["labels"]:
        shares = f"{percent(label['precision']):>10} {percent(label['recall']):>8}"
        yield f"{label['label'][:24]:24} {label['rows']:7,} {shares}"
    lists = {"errors, the most confident first": first["errors"]}
    lists["rows that look mislabelled (by cross-validation)"] = report.get("label_errors", [])
    for title, predictions in lists.items():
        if predictions:
            yield ""
            yield f"{title}:"
            yield from (f"  {_describe_error(prediction)}" for prediction in predictions)
    for warning in report.get("warnings", []):
        yield f"warning: {warning}"


def _describe_model(name: str, metrics: dict[str, Any]) -> Iterator[str]:
    low, high = metrics["interval"]
    yield (
        f"{name}: {percent(metrics['accuracy'])} of {metrics['rows']:,} rows correct (95 % interval "
        f"{percent(low)} to {percent(high)}), balanced accuracy {percent(metrics['balanced_accuracy'])}"
    )
    if metrics["abstained"]:
        yield f"  {describe_abstentions(metrics)}"
    yield f"  calibration error: {percent(metrics['calibration']['error'])}"


def describe_abstentions(metrics: dict[str, Any]) -> str:
    """Return the number of texts on which the model abstained, by reason, and the accuracy on all parts."""
    count = sum(rows["rows"] for rows in metrics["abstained"].values())
    reasons = ", ".join(
        f"{reason} {rows['rows']:,} ({percent(rows['accuracy'])} of them correct)"
        for reason, rows in metrics["abstained"].items()
    )
    others = f"; of the others {percent(metrics['answered_accuracy'])} are correct"
    return (
        f"abstained on {count:,} of {metrics['rows']:,} rows: {reasons}"
        f"{others if metrics['answered_accuracy'] is not None else ''}"
    )


def _describe_error(error: dict[str, Any]) -> str:
    leaders = f" [{', '.join(error['leaders'][:3])}]" if error["leaders"] else ""
    text = shorten(error["text"], 100)
    return (
        f"{'|'.join(error['truth']) or '-'}, predicted {'|'.join(error['predicted']) or '-'} "
        f"{error['score']:.0%}{leaders}: {' '.join(text.split())}"
    )


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash."""
    return "-" if share is None else f"{share:.1%}"
