"""A report as lines of text: metrics of one or several models with the baseline, errors and warnings."""

from collections.abc import Iterator
from typing import Any

from hardmax.formatting import shorten

# A report is a JSON value:
#   title, source               the models, and the rows
#   models                      metrics by name (metrics.evaluate)
#   baseline                    {"name", "accuracy", "source"} or null
#   comparison                  of the first model with another one (metrics.compare), or absent
#   label_errors                rows that look mislabelled; only in reports of training
#   warnings                    sentences


MAX_LISTED = 20  # rows where two models differ


def describe_report(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a report."""
    for name, metrics in report["models"].items():
        yield from _describe_model(name, metrics)
    first = next(iter(report["models"].values()))
    compared = [f"{percent(first['majority_class'])} by always predicting the most frequent label"]
    if baseline := report.get("baseline"):
        compared.append(f"{percent(baseline['accuracy'])} by {baseline['name']} ({baseline['source']})")
    yield f"  for comparison: {', '.join(compared)}"
    if short := report.get("short_texts"):
        complete, half, quarter = (percent(short[name]) for name in ("complete", "half", "quarter"))
        yield (
            f"  out of distribution: {complete} of the held-out texts, {half} of them cut to half their "
            f"words, {quarter} cut to a quarter"
        )
    yield ""
    yield f"{'label':24} {'rows':>7} {'predicted':>10} {'precision':>10} {'recall':>8}"
    for label in first["labels"]:
        shares = f"{percent(label['precision']):>10} {percent(label['recall']):>8}"
        yield f"{label['label'][:24]:24} {label['rows']:7,} {label['predicted']:10,} {shares}"
    n_errors = first["error_count"]
    lists = {f"errors, the most confident first ({n_errors:,} in all)": first["errors"]}
    lists["rows that look mislabelled (by cross-validation)"] = report.get("label_errors", [])
    if comparison := report.get("comparison"):
        lists[describe_comparison(comparison)] = comparison["differing"][:MAX_LISTED]
    for title, predictions in lists.items():
        if predictions:
            yield ""
            yield f"{title}:"
            yield from (f"  {_describe_prediction(prediction)}" for prediction in predictions)
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


def describe_comparison(comparison: dict[str, Any]) -> str:
    """Return the accuracy of two models on the same rows, with McNemar's test."""
    return (
        f"{comparison['name']}: {percent(comparison['other_accuracy'])} of {comparison['rows']:,} rows "
        f"correct, this model {percent(comparison['accuracy'])}; only this model is right on "
        f"{comparison['only_model_correct']:,} rows, only the other on {comparison['only_other_correct']:,} "
        f"(McNemar's test: p = {comparison['p_value']:.2g}); {len(comparison['differing']):,} rows differ"
    )


def row_name(prediction: dict[str, Any]) -> str:
    """Return the number of a row in its file, its id and the number of similar rows."""
    similar = f"+{prediction['similar']} similar" if prediction.get("similar") else ""
    return " ".join(filter(None, [str(prediction["row"] or ""), prediction.get("id", ""), similar]))


def _describe_prediction(row: dict[str, Any]) -> str:
    leaders = f" [{', '.join(row['leaders'][:3])}]" if row["leaders"] else ""
    other = f", the other {'|'.join(row['other']) or '-'}" if "other" in row else ""
    truth, predicted = ("|".join(row[name]) or "-" for name in ("truth", "predicted"))
    labels = f"{truth}, predicted {predicted} {row['score']:.0%}{other}{leaders}"
    return f"row {row_name(row)}: {labels}: {' '.join(shorten(row['text'], 100).split())}"


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash."""
    return "-" if share is None else f"{share:.1%}"
