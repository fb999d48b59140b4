"""Leaders, clusters and words of clouds that are made by hand: chains, twins and ties."""

from typing import Any

import numpy as np

from model_export.attention.reference import argmax_sets
from service.text.decision import UNITS_PER_LOGIT
from service.text.encoder import EncodedText
from service.text.explanation import Explainer
from service.text.head import Head, HeadOutputs


def explain(head: Head, text: str, positions: list[tuple[float, float]]) -> dict[str, Any]:
    """Explain a text whose words have these positions, with a head of no layers."""
    tokenized = head.encoder.tokenize(text)
    assert len(tokenized) == len(positions)
    z = np.array(positions, float)
    C = argmax_sets(z)
    equal = (z[:, None] == z[None]).all(axis=2)
    target = [int(equal[row.argmax()].argmax()) if (equal[row.argmax()] == row).all() else -1 for row in C]
    ends = np.array([z[row].mean(axis=0) for row in C])
    is_leader = [j >= 0 and equal[i][j] for i, j in enumerate(target)]
    outputs = HeadOutputs(
        texts=[EncodedText(tokenized, head.encoder.encode(tokenized.chunks(), output_attentions=True))],
        labels=(),
        bounds=np.array([0, len(z)]),
        text=np.zeros(len(z), np.int64),
        sizes=np.diff(tokenized.bounds),
        bias=np.zeros((1, 1), np.int64),
        contribution=np.rint(UNITS_PER_LOGIT * ends[:, 0]).astype(np.int64)[None],
        target=np.array(target),
        leader_since=np.where(is_leader, 0, -1),
        positions=[z[None]],
        is_ood=np.zeros(1, bool),
    )
    answer: dict[str, Any] = {}
    explainer = Explainer(outputs, "codepoints", head.encoder.replacements)
    explainer.add_leaders([answer])
    explainer.add_words([answer])
    return answer


def test_word_joins_the_leader_at_the_end_of_its_chain(head: Head) -> None:
    answer = explain(head, "good superb the", [(1, 0.5), (2, 0.2), (4, 0)])
    assert [word["cluster"] for word in answer["words"]] == [0, 0, 0]
    (leader,) = answer["leaders"]
    assert (leader["word"], leader["followers"], leader["contribution"]) == ("the", 2, 12.0)


def test_twins_are_one_leader_with_all_their_spans(head: Head) -> None:
    answer = explain(head, "superb the superb film", [(4, 0), (1, 0), (4, 0), (0.5, 0)])
    (leader,) = answer["leaders"]
    assert (leader["spans"], leader["followers"]) == ([[0, 6], [11, 17]], 2)
    assert [word["leader"] for word in answer["words"]] == [True, False, True, False]


def test_tie_is_named_by_its_leaders(head: Head) -> None:
    answer = explain(head, "superb awful the film", [(4, 2), (-4, 2), (0, 1), (0, 0.5)])
    kinds = {cluster["kind"]: cluster for cluster in answer["clusters"] if cluster["size"] == 2}
    assert kinds["tie"]["leaders"] == ["superb", "awful"]
    tied = [word["word"] for word in answer["words"] if word["cluster"] == kinds["tie"]["id"]]
    assert tied == ["the", "film"]
    assert {leader["word"] for leader in answer["leaders"]} == {"superb", "awful"}
    assert [leader["followers"] for leader in answer["leaders"]] == [0, 0]


def test_clusters_are_named_by_their_heaviest_words_each_once(head: Head) -> None:
    answer = explain(head, "superb the the film good of", [(4, 0), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0)])
    assert answer["clusters"][0]["words"] == ["superb", "the", "film", "good"]
    assert answer["clusters"][0]["share"] == 1.0


def test_word_names_the_token_that_replaces_it(head: Head) -> None:
    answer = explain(head, "Paris was superb これは", [(4, 0), (1, 0), (2, 0), (0.5, 0)])
    assert answer["leaders"][0]["read_as"] == "<name>"
    assert [word.get("read_as") for word in answer["words"]] == ["<name>", None, None, "<unknown>"]


def test_leader_lists_at_most_eight_words_that_it_has_read(head: Head) -> None:
    text = "the film was superb and the story was good but the soup was cold and the hotel was awful"
    positions = [(1 + i, i) for i in range(len(head.encoder.tokenize(text)))]
    leaders = explain(head, text, positions)["leaders"]
    assert max(len(leader["read"]) for leader in leaders) == 8
    assert max(leader["read_total"] for leader in leaders) > 8
    for leader in leaders:
        assert len(leader["read"]) == min(8, leader["read_total"])
