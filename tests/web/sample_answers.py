"""Answers of /classify for tests of the page, in the format of the service.

They have what leaders have read, counterfactuals, and what the served models seldom return: several labels,
and abstention.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from playwright.sync_api import Page, Route

Number = float | dict[str, float]
Answer = dict[str, Any]
Response = Answer | Callable[[Answer], Answer | None]
Span = Sequence[int]


CLUSTER_POSITIONS = {0: (0.9, 0.9), 1: (1.5, -0.3), 2: (1.8, 0.5), 3: (-1.5, -0.6)}  # final positions


def word(surface: str, contribution: Number, cluster: int = 0, **extra: object) -> Answer:
    """Return a word for `make_answer`.

    `extra` may have leader=True, `read` (the words that the leader has read), `attends_to` (for each layer,
    the words that its heads attend to) and `reversed_by` (a word that reverses the contribution).
    """
    defaults = {"leader": False, "read": None, "reversed_by": None, "read_as": None}
    return {"word": surface, "contribution": contribution, "cluster": cluster, **defaults, **extra}


def make_answer(
    text: str, words: Sequence[Answer], bias: Number = 0.0, without: Sequence[Span] = (), **extra: object
) -> Answer:
    """Return an answer about `text`; logit, clusters and probabilities are computed from the words."""
    labels = list(bias) if isinstance(bias, dict) else ["negative", "positive"]
    all_words = _add_positions(text, words)
    removed = [w for w in all_words if w["spans"][0] in [list(span) for span in without]]
    removed_names = {w["word"] for w in removed}
    words = [_reverse(w) if w["reversed_by"] in removed_names else w for w in all_words if w not in removed]
    ids = sorted({w["cluster"] for w in words})
    logit = _sum([bias, *(w["contribution"] for w in words)])
    probs = _probabilities(logit, labels)
    label = max(probs, key=probs.__getitem__)
    item = {
        "index": 0, "label": label, "score": probs[label], "probs": probs, "logit": logit, "bias": bias,
        "abstain_reason": None, "n_words": len(words), "unknown": 0, "truncated": False,
        "leaders": [_leader(w, words, all_words) for w in words if w["leader"]],
        "clusters": [_cluster(id, words) for id in ids],
        "words": words,
        "trajectory": [[w["position"] for w in words], [w["final_position"] for w in words]],
    }  # fmt: skip
    usage = {"texts": 1, "tokens": len(words)}
    return {"id": "x", "model": "sentiment", "usage": usage, "data": [item | extra]}


def mock_classify(page: Page, response: Response) -> None:
    """Answer /classify with `response`, or with its result for the request; None: let the service answer."""

    def fulfil(route: Route) -> None:
        answer = response(json.loads(route.request.post_data or "{}")) if callable(response) else response
        route.fulfill(json=answer) if answer else route.continue_()

    page.route("**/classify", fulfil)


def _add_positions(text: str, words: Sequence[Answer]) -> list[Answer]:
    """Add to each word its positions and its span in code points, searched from left to right."""
    result, end = [], 0
    first_index = {w["word"]: k for k, w in reversed([*enumerate(words)])}
    for k, w in enumerate(words):
        start = text.index(w["word"], end)
        end = start + len(w["word"])
        center = CLUSTER_POSITIONS[w["cluster"]]
        offset = 0.0 if isinstance(w["contribution"], dict) else 0.4 * w["contribution"]
        position = [*center] if w["leader"] else [math.sin(k) / 4 + offset, math.cos(k) / 4]
        final = [center[c] + (position[c] - center[c]) / 4 for c in (0, 1)]
        result.append({**w, "spans": [[start, end]], "position": position, "final_position": final})
        if "attends_to" in w:
            result[-1]["attends_to"] = [[first_index[name] for name in layer] for layer in w["attends_to"]]
    return result


def _reverse(w: Answer) -> Answer:
    """Return a word without the one that reversed it: its contribution and positions change sides."""
    start, end = ([-x for x in w[name]] for name in ("position", "final_position"))
    return {**w, "contribution": -3.0 * w["contribution"], "position": start, "final_position": end}


def _sum(numbers: Sequence[Number]) -> Number:
    if isinstance(numbers[0], dict):
        return {label: sum(n[label] for n in numbers if isinstance(n, dict)) for label in numbers[0]}
    return sum(n for n in numbers if not isinstance(n, dict))


def _probabilities(logit: Number, labels: list[str]) -> dict[str, float]:
    if not isinstance(logit, dict):
        probability = 1 / (1 + math.exp(-logit))
        return {labels[0]: 1 - probability, labels[1]: probability}
    total = sum(math.exp(x) for x in logit.values())
    return {label: math.exp(x) / total for label, x in logit.items()}


def _leader(leader: Answer, words: list[Answer], all_words: list[Answer]) -> Answer:
    """Return a leader, with the contribution of its cluster. Of equal words it read that of its cluster."""
    cluster = leader["cluster"]
    members = [w for w in words if w["cluster"] == cluster]
    answer = {
        "word": leader["word"], "cluster": cluster, "since_layer": 0, "followers": len(members) - 1,
        "spans": leader["spans"], "contribution": _sum([w["contribution"] for w in members]),
    }  # fmt: skip
    if leader["read"] is None:
        return answer
    spans = {w["word"]: w["spans"] for w in sorted(all_words, key=lambda w: w["cluster"] == cluster)}
    remaining = {w["word"] for w in words}
    read = [name for name in leader["read"] if name in remaining]
    reads = [{"word": name.lower(), "spans": spans[name], "layer": 1 + k // 2} for k, name in enumerate(read)]
    return {**answer, "read": reads}


def _cluster(id: object, words: list[Answer]) -> Answer:
    members = [w for w in words if w["cluster"] == id]
    return {
        "id": id, "kind": "leader", "leaders": [w["word"] for w in members if w["leader"]],
        "words": [w["word"] for w in members], "size": len(members), "share": len(members) / len(words),
        "contribution": _sum([w["contribution"] for w in members]),
    }  # fmt: skip


SHORT_TEXT = "Boils at 100 and water is lovely"
PLAIN_ANSWER = make_answer(  # of a service that does not return what leaders have read
    SHORT_TEXT,
    [
        word("Boils", -1.204), word("at", -0.1, leader=True), word("100", -0.703), word("and", -0.051),
        word("water", -0.402), word("is", 0.333, 1), word("lovely", 2.1, 1, leader=True),
    ],
    bias=0.504,
)  # fmt: skip


LONG_TEXT = (
    "Not bad at all: the jokes are funny and the ending is charming, although the middle is a little slow."
)
LONG_WORDS = [
    word("Not", 0.21), word("bad", 0.74, leader=True, read=["Not", "all", "at"], reversed_by="Not"),
    word("at", 0.05), word("all", 0.11), word(":", 0.02), word("the", 0.03, 1),
    word("jokes", 0.31, 1, attends_to=[["the", "all"], [], ["all", "charming", "funny"], []]),
    word("are", 0.06, 1, attends_to=[[], [], [], []]),
    word("funny", 0.92, 1, leader=True, read=["jokes"]), word("and", 0.04, 1),
    word("the", 0.02, 2), word("ending", 0.37, 2), word("is", 0.05, 2),
    word("charming", 1.11, 2, leader=True, read=["ending", "is"]), word(",", 0.01, 2),
    word("although", -0.34, 3), word("the", -0.03, 3), word("middle", -0.22, 3), word("is", -0.04, 3),
    word("a", -0.05, 3), word("little", -0.16, 3),
    word("slow", -0.58, 3, leader=True, read=["middle", "little", "although"]), word(".", -0.02, 3),
]  # fmt: skip
FLIP = {"without": [{"word": "not", "spans": [[0, 3]]}, {"word": "charming", "spans": [[54, 62]]}]}
SUFFICIENT = {"words": [{"word": "funny", "spans": [[30, 35]]}], "score": 0.871}


def answer_with_read(request: Answer) -> Answer:
    """Return the answer of a service that returns what leaders have read."""
    answer = make_answer(LONG_TEXT, LONG_WORDS, 0.05, without=request.get("without", []))
    if request.get("flip"):
        removed = [entry["spans"][0] for entry in FLIP["without"]]
        flipped = make_answer(LONG_TEXT, LONG_WORDS, 0.05, without=removed)["data"][0]
        answer["data"][0]["flip"] = {**FLIP, "label": flipped["label"], "score": flipped["score"]}
    if request.get("sufficient"):
        answer["data"][0]["sufficient"] = SUFFICIENT
    return answer
