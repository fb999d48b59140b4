"""Describe answers in lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hardmax.answers import Answer
from hardmax.formatting import naming_words, pluralize
from hardmax.models.texts import Cluster, Leader, number_of
from service.runtime.bundle import newest_version

SHOWN_CLUSTERS_OF_TEXT = 8
SHOWN_WORDS = 3
MIN_SHOWN = 0.0005  # rounds to 0.001
SHOWN_CLUSTERS_OF_CLOUD = 20
SHOWN_LAYERS = 8

Document = Mapping[str, Any]


def describe_answer(answer: Answer, width: int | None = None) -> Iterator[str]:
    """Yield the label, then the sum that gives the logit: a line per cluster, the bias, the logit.

    With one logit per label the sum is that of the most probable label. `width` cuts the text to a terminal.
    """
    line = f"{answer.verdict}  {' '.join(answer.text.split())}".rstrip()
    yield line if width is None or len(line) <= width else f"{line[: max(width - 1, 0)].rstrip()}…"
    if answer.clusters:
        yield from _describe_sum(answer)
    yield from _describe_searches(answer)


def _describe_sum(answer: Answer) -> Iterator[str]:
    leaders = {leader.cluster: leader for leader in answer.leaders}
    amounts = [(number_of(cluster.contribution, answer.label), cluster) for cluster in answer.clusters]
    amounts.sort(key=lambda pair: -abs(pair[0]))
    shown = [pair for pair in amounts if abs(pair[0]) >= MIN_SHOWN][:SHOWN_CLUSTERS_OF_TEXT]
    for amount, cluster in shown:
        name, detail = _describe_cluster(cluster, leaders.get(cluster.id))
        yield f"  {amount:+8.3f}  {name:<32}  {detail}"
    if hidden := amounts[len(shown) :]:
        amount = round(sum(amount for amount, _ in hidden), 3) + 0.0  # no -0.000
        yield f"  {amount:+8.3f}  {pluralize(len(hidden), 'smaller cluster')}"
    yield f"  {number_of(answer.bias, answer.label):+8.3f}  bias"
    label = f" of {answer.label}" if isinstance(answer.logit, dict) else ""
    yield f"  {number_of(answer.logit, answer.label):+8.3f}  = logit{label}"


def _describe_searches(answer: Answer) -> Iterator[str]:
    """Yield the words that alone give the label, and those whose removal changes it."""
    if answer.sufficient:
        words = ", ".join(word.word for word in answer.sufficient.words)
        yield f"  {words} alone: {answer.label} {answer.sufficient.score:.1%}"
    if answer.flip:
        words = ", ".join(word.word for word in answer.flip.without)
        yield f"  without {words}: {answer.flip.label} {answer.flip.score:.1%}"


def _describe_cluster(cluster: Cluster, leader: Leader | None) -> tuple[str, str]:
    """Return the words of largest contribution of a cluster, and a phrase about its leader or its tie."""
    words = naming_words(cluster.words)
    more = " …" if max(len(words), cluster.size) > SHOWN_WORDS else ""
    name = ", ".join(words[:SHOWN_WORDS]) + more
    if cluster.kind == "tie" or leader is None:
        return name, f"tie of {', '.join(cluster.leaders)}"
    verb = "leads" if [leader.word] == words else f"led by {leader.word}"
    suffix = "" if leader.followers else ", alone"
    return name, f"{verb} since layer {leader.since_layer}{suffix}"


def describe_dynamics(result: Document) -> Iterator[str]:
    """Yield the status of a run with its margin, then a line per cluster."""
    margin = "" if result.get("margin") is None else f", margin {result['margin']:.3g}"
    end = {
        "certified": f"certified at layer {result.get('certified_layer')}{margin}",
        "converged": f"converged after {result['layers']} layers, without a certificate",
        "max_layers": f"still moving after {result['layers']} layers",
    }.get(result["status"], result["status"])
    points = pluralize(result["n"], "point")
    yield f"{points} in dimension {result['d']}, alpha {result['alpha']:g}: {end}"
    yield f"{pluralize(len(result['leaders']), 'leader')}, {pluralize(len(result['clusters']), 'cluster')}"
    rows = [("cluster", "kind", "size", "leaders", "limit")]
    for cluster in sorted(result["clusters"], key=lambda c: -int(c["size"]))[:SHOWN_CLUSTERS_OF_CLOUD]:
        leaders = ", ".join(map(str, cluster["leaders"][:6])) + (" …" if len(cluster["leaders"]) > 6 else "")
        more = " …" if len(cluster["limit"]) > 6 else ""
        limit = ", ".join(f"{x:.4g}" for x in cluster["limit"][:6]) + more
        rows.append((str(cluster["id"]), cluster["kind"], str(cluster["size"]), leaders, f"({limit})"))
    yield from align_columns(rows)
    if len(result["clusters"]) > SHOWN_CLUSTERS_OF_CLOUD:
        yield f"… and {len(result['clusters']) - SHOWN_CLUSTERS_OF_CLOUD} smaller ones (--json lists all)"
    if softmax := result.get("softmax"):
        yield from _describe_softmax(softmax)


def _describe_softmax(softmax: Document) -> Iterator[str]:
    """Yield the largest distance of softmax attention from the hardmax run, at some layers."""
    layers, distances = softmax["layers"], softmax["distance"]
    step = max(1, (len(layers) - 1) // SHOWN_LAYERS)
    shown = dict.fromkeys([*range(0, len(layers) - 1, step), len(layers) - 1])
    yield f"softmax at temperature {softmax['temperature']:g}, farthest point from its hardmax run:"
    yield from align_columns(
        [("layer", "distance"), *((str(layers[k]), f"{distances[k]:.3g}") for k in shown)]
    )


def describe_control(result: Document) -> Iterator[str]:
    """Yield the matrix with its margin, or the pair that prevents one, or that nothing is proved."""
    if result["feasible"] is None:
        yield "undecided: neither a matrix nor a proof that there is none was found"
    elif not result["feasible"]:
        yield "infeasible: no matrix A makes these points lead"
        if result.get("worst_pair"):
            token, leader, rival = result["worst_pair"]
            yield f"  token {token} cannot prefer {leader} to {rival}"
    else:
        margin = "" if result.get("margin") is None else f", margin {result['margin']:.4g}"
        yield f"feasible{margin}; A ="
        for row in result["A"]:
            yield "  " + "  ".join(f"{x:10.5f}" for x in row)
    if result.get("note"):
        yield f"  {result['note']}"
    if result.get("dynamics"):
        yield from describe_dynamics(result["dynamics"])


def describe_sequences(data: Sequence[Document], expected: Sequence[Any]) -> Iterator[str]:
    """Yield a line per sequence; if the file has labels, also those that differ and the number that agree."""
    has_labels = any(label is not None for label in expected)
    rows = [("sequence", "label", "margin", "leader", "in the file")[: 5 if has_labels else 4]]
    n_correct = 0
    for answer, label in zip(data, expected, strict=True):
        n_correct += label is not None and answer["label"] == label
        margin = "any" if answer.get("margin") is None else f"{answer['margin']:.3g}"
        leader = "several" if answer.get("leader") is None else str(answer["leader"])
        row = (str(answer["index"]), str(answer["label"]), margin, leader)
        rows.append((*row, "" if label in (None, answer["label"]) else str(label)) if has_labels else row)
    yield from align_columns(rows)
    if has_labels:
        n_labels = sum(label is not None for label in expected)
        yield f"{n_correct} of {n_labels} labels are those in the file"


def describe_models(cards: Sequence[Document]) -> Iterator[str]:
    """Yield a line per model: version, date, accuracy, description."""
    if not cards:
        yield "no models here"
        return
    names = [str(card["name"]) for card in cards]
    rows = [("model", "kind", "", "date", "rows", "accuracy", "description")]
    for card in cards:
        base_name = str(card["name"]).rpartition("@")[0]
        is_newest = base_name and newest_version(base_name, names) == card["name"]
        serves = f"answers as {base_name}" if is_newest else ""
        prefix = f"{card['again']} again: " if "again" in card else ""
        figures, data = card.get("figures") or {}, card.get("data") or {}
        accuracy, number = figures.get("accuracy"), data.get("rows") if isinstance(data, dict) else None
        rows.append(
            (
                str(card["name"]),
                str(card["kind"]),
                "default" if card.get("default") else serves,
                str(card.get("created", ""))[:10],
                f"{number:,}" if isinstance(number, int) else "",
                f"{accuracy:.1%}" if isinstance(accuracy, float) else "",
                prefix + str(card.get("description", "")),
            )
        )
    yield from align_columns(rows)


def align_columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with aligned columns. The first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
