"""Answers of /classify made by hand, as the contract has them.

They say what leaders have read, what would change the verdict, and what a served model seldom says: several
labels, no verdict.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from playwright.sync_api import Page, Route

Number = float | dict[str, float]
Answer = dict[str, Any]
Says = Answer | Callable[[Answer], Answer | None]
Span = Sequence[int]


LEANS = {0: (0.9, 0.9), 1: (1.5, -0.3), 2: (1.8, 0.5), 3: (-1.5, -0.6)}  # where clusters end


def word(surface: str, contribution: Number, cluster: int = 0, **more: object) -> Answer:
    """One word for `explained`. `more` may hold leader=True, `read`, the words that it has read, and
    `attends_to`, for each layer the words that its heads attend to.

    Without the word `reversed_by` it says the opposite.
    """
    silent = {"leader": False, "read": None, "reversed_by": None, "read_as": None}
    return {"word": surface, "contribution": contribution, "cluster": cluster, **silent, **more}


def explained(
    text: str, words: Sequence[Answer], bias: Number = 0.0, without: Sequence[Span] = (), **more: object
) -> Answer:
    """The whole answer about `text`; the logit, the clusters and the probabilities follow from the words."""
    labels = list(bias) if isinstance(bias, dict) else ["negative", "positive"]
    everything = _place(text, words)
    gone = [w for w in everything if w["spans"][0] in [list(span) for span in without]]
    struck = {w["word"] for w in gone}
    placed = [_reversed(w) if w["reversed_by"] in struck else w for w in everything if w not in gone]
    ids = sorted({w["cluster"] for w in placed})
    logit = _sum([bias, *(w["contribution"] for w in placed)])
    probs = _probabilities(logit, labels)
    label = max(probs, key=probs.__getitem__)
    item = {
        "index": 0, "label": label, "score": probs[label], "probs": probs, "logit": logit, "bias": bias,
        "abstain_reason": None, "n_words": len(placed), "unknown": 0, "truncated": False,
        "leaders": [_leader(w, placed, everything) for w in placed if w["leader"]],
        "clusters": [_cluster(id, placed) for id in ids],
        "words": placed,
        "trajectory": [[w["position"] for w in placed], [w["final_position"] for w in placed]],
    }  # fmt: skip
    usage = {"texts": 1, "tokens": len(placed)}
    return {"id": "x", "model": "sentiment", "usage": usage, "data": [item | more]}


def answering(page: Page, says: Says) -> None:
    """The page hears this, or what it makes of the request; where that is None, the service answers."""

    def fulfil(route: Route) -> None:
        made = says(json.loads(route.request.post_data or "{}")) if callable(says) else says
        route.fulfill(json=made) if made else route.continue_()

    page.route("**/classify", fulfil)


def _place(text: str, words: Sequence[Answer]) -> list[Answer]:
    """Each word with its span in code points, which is how Python counts, found from left to right."""
    placed, at = [], 0
    first = {given["word"]: k for k, given in reversed([*enumerate(words)])}
    for k, given in enumerate(words):
        start = text.index(given["word"], at)
        at = start + len(given["word"])
        lean = LEANS[given["cluster"]]
        side = 0.0 if isinstance(given["contribution"], dict) else 0.4 * given["contribution"]
        place = [*lean] if given["leader"] else [math.sin(k) / 4 + side, math.cos(k) / 4]
        end = [lean[c] + (place[c] - lean[c]) / 4 for c in (0, 1)]
        placed.append({**given, "spans": [[start, at]], "position": place, "final_position": end})
        if "attends_to" in given:
            placed[-1]["attends_to"] = [[first[name] for name in layer] for layer in given["attends_to"]]
    return placed


def _reversed(w: Answer) -> Answer:
    """The word as it is where what reversed it is gone: it speaks for the other side, from another place."""
    start, end = ([-x for x in w[name]] for name in ("position", "final_position"))
    return {**w, "contribution": -3.0 * w["contribution"], "position": start, "final_position": end}


def _sum(numbers: Sequence[Number]) -> Number:
    if isinstance(numbers[0], dict):
        return {label: sum(n[label] for n in numbers if isinstance(n, dict)) for label in numbers[0]}
    return sum(n for n in numbers if not isinstance(n, dict))


def _probabilities(logit: Number, labels: list[str]) -> dict[str, float]:
    if not isinstance(logit, dict):
        share = 1 / (1 + math.exp(-logit))
        return {labels[0]: 1 - share, labels[1]: share}
    total = sum(math.exp(x) for x in logit.values())
    return {label: math.exp(x) / total for label, x in logit.items()}


def _leader(w: Answer, placed: list[Answer], everything: list[Answer]) -> Answer:
    """A leader adds what its whole cluster adds. Of equal words it has read the one of its cluster."""
    members = [other for other in placed if other["cluster"] == w["cluster"]]
    found = {
        "word": w["word"], "cluster": w["cluster"], "since_layer": 0, "followers": len(members) - 1,
        "spans": w["spans"], "contribution": _sum([m["contribution"] for m in members]),
    }  # fmt: skip
    if w["read"] is None:
        return found
    near = {other["word"]: other for other in sorted(everything, key=lambda o: o["cluster"] == w["cluster"])}
    present = {other["word"] for other in placed}
    read = [{"word": name.lower(), "spans": near[name]["spans"]} for name in w["read"] if name in present]
    return {**found, "read": [{**each, "layer": 1 + k // 2} for k, each in enumerate(read)]}


def _cluster(id: object, placed: list[Answer]) -> Answer:
    members = [w for w in placed if w["cluster"] == id]
    return {
        "id": id, "kind": "leader", "leaders": [w["word"] for w in members if w["leader"]],
        "words": [w["word"] for w in members], "size": len(members), "share": len(members) / len(placed),
        "contribution": _sum([w["contribution"] for w in members]),
    }  # fmt: skip


TEXT = "Boils at 100 and water is lovely"
CLUSTERED = explained(  # by a service that does not say what its leaders have read
    TEXT,
    [
        word("Boils", -1.204), word("at", -0.1, leader=True), word("100", -0.703), word("and", -0.051),
        word("water", -0.402), word("is", 0.333, 1), word("lovely", 2.1, 1, leader=True),
    ],
    bias=0.504,
)  # fmt: skip


READ = "Not bad at all: the jokes are funny and the ending is charming, although the middle is a little slow."
WORDS = [
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


def reading(request: Answer) -> Answer:
    """What a service answers whose leaders say what they have read."""
    found = explained(READ, WORDS, 0.05, without=request.get("without", []))
    if request.get("flip"):
        other = explained(READ, WORDS, 0.05, without=[w["spans"][0] for w in FLIP["without"]])
        changed = {name: other["data"][0][name] for name in ("label", "score")}
        found["data"][0]["flip"] = {**FLIP, **changed}
    if request.get("sufficient"):
        found["data"][0]["sufficient"] = SUFFICIENT
    return found
