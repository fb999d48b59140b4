"""Answers of /classify made by hand, for what a served model seldom says: several labels, no verdict."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from playwright.sync_api import Page, Route

Number = float | dict[str, float]
Answer = dict[str, object]


def word(surface: str, contribution: Number, cluster: int = 0, **more: object) -> dict[str, object]:
    """One word for `explained`; `more` may hold leader, read_as, and context as a string."""
    return {"surface": surface, "contribution": contribution, "cluster": cluster, **more}


def explained(text: str, words: list[dict[str, object]], bias: Number = 0.0, **more: object) -> Answer:
    """The whole answer about `text`; the logit, the clusters and the probabilities follow from the words."""
    labels = list(bias) if isinstance(bias, dict) else ["negative", "positive"]
    placed = _place(text, words)
    ids = sorted({w["cluster"] for w in placed})
    logit = _sum([bias, *(w["contribution"] for w in placed)])
    probs = _probabilities(logit, labels)
    label = max(probs, key=probs.__getitem__)
    item = {
        "index": 0, "label": label, "score": probs[label], "probs": probs, "logit": logit, "bias": bias,
        "undecided": None, "tokens": len(placed), "unknown": 0, "truncated": False,
        "leaders": [_leader(w, placed) for w in placed if w["leader"]],
        "clusters": [_cluster(id, placed) for id in ids],
        "words": placed,
        "trajectory": [[w["start"] for w in placed], [w["end"] for w in placed]],
    }  # fmt: skip
    return {
        "id": "x",
        "model": "sentiment",
        "usage": {"texts": 1, "tokens": len(placed)},
        "data": [item | more],
    }


def answering(page: Page, answer: Callable[[dict[str, object]], Answer | None]) -> None:
    """The page hears `answer(request)` in place of the service's; None lets the service answer."""

    def fulfil(route: Route) -> None:
        made = answer(json.loads(route.request.post_data or "{}"))
        route.fulfill(json=made) if made else route.continue_()

    page.route("**/classify", fulfil)


def _place(text: str, words: list[dict[str, object]]) -> list[dict[str, object]]:
    """Each word with its span in code points, which is how Python counts, found from left to right."""
    placed, at = [], 0
    for k, given in enumerate(words):
        surface = str(given["surface"])
        start = text.index(surface, at)
        at = start + len(surface)
        context = re.search(re.escape(str(given["context"])), text) if "context" in given else None
        side = given["contribution"] if isinstance(given["contribution"], float | int) else 0.0
        placed.append({
            "text": surface, "spans": [[start, at]], "cluster": given["cluster"],
            "leader": given.get("leader", False), "contribution": given["contribution"],
            "read_as": given.get("read_as"),
            "context": list(context.span()) if context else [start, at],
            "start": [math.sin(k) / 4, math.cos(k) / 4], "end": [side, 0.1 * k],
        })  # fmt: skip
    return placed


def _sum(numbers: list[Number]) -> Number:
    if isinstance(numbers[0], dict):
        return {label: sum(n[label] for n in numbers if isinstance(n, dict)) for label in numbers[0]}
    return sum(n for n in numbers if not isinstance(n, dict))


def _probabilities(logit: Number, labels: list[str]) -> dict[str, float]:
    if not isinstance(logit, dict):
        share = 1 / (1 + math.exp(-logit))
        return {labels[0]: 1 - share, labels[1]: share}
    total = sum(math.exp(x) for x in logit.values())
    return {label: math.exp(x) / total for label, x in logit.items()}


def _leader(w: dict[str, object], placed: list[dict[str, object]]) -> dict[str, object]:
    followers = sum(other["cluster"] == w["cluster"] for other in placed) - 1
    kept = {name: w[name] for name in ("cluster", "contribution", "spans", "context", "read_as")}
    return {"word": w["text"], "since_layer": 0, "followers": followers, **kept}


def _cluster(id: object, placed: list[dict[str, object]]) -> dict[str, object]:
    members = [w for w in placed if w["cluster"] == id]
    return {
        "id": id, "kind": "leader", "leaders": [w["text"] for w in members if w["leader"]],
        "words": [w["text"] for w in members], "size": len(members), "share": len(members) / len(placed),
        "contribution": _sum([w["contribution"] for w in members]),  # type: ignore[misc]
    }  # fmt: skip
