"""Sentiment and its reason, on models whose answers are known by hand and on random ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import open_sentiment, plane_weights, random_weights

from model_export.verify import refer
from service.errors import BundleError, InvalidInput, TooLarge
from service.sentiment import Sentiment

RANDOM_WORDS = [f"w{letter}{other}" for letter in "abcdefghij" for other in "abcdefghij"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Sentiment:
    return open_sentiment(tmp_path_factory.mktemp("plane"))


def open_places(folder: Path, places: dict[str, tuple[float, float]], **changes: Any) -> Sentiment:
    """A model of such tokens, each of weight 1."""
    table = {name: (x, y, 1.0) for name, (x, y) in places.items()}
    return open_sentiment(folder, plane_weights(table, **changes), vocabulary=list(places))


def answer(model: Sentiment, text: str, **how: Any) -> dict[str, Any]:
    (only,) = model.classify([model.tokenise(text)], **how)
    return only


def test_sentiment_of_a_text_is_the_value_worked_out_by_hand(plane: Sentiment) -> None:
    found = answer(plane, "The superb film, the film", explain="none")
    logit = 0.5 + 4 / (1 + 2 * 2 + 2)  # superb is 4 and weighs 1; the (twice 2) and film (twice 1) are 0
    assert found == {
        "label": "positive",
        "score": pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6),
        "probs": {
            "negative": pytest.approx(1 / (1 + math.exp(logit)), abs=1e-6),
            "positive": pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6),
        },
        "logit": pytest.approx(logit, abs=1e-6),
        "bias": 0.5,
        "tokens": 5,
        "unknown": 0,
        "truncated": False,
    }


def test_sentiment_leaders_and_clusters_are_those_found_by_hand(plane: Sentiment) -> None:
    found = answer(plane, "the superb film; good")
    # good (1, 0) follows superb (4, 0): 4 - 3/4 = 3.25; W = 1 + 2 + 1 + 1
    assert found["leaders"] == [
        {
            "word": "superb",
            "cluster": 0,
            "since_layer": 0,
            "followers": 1,
            "contribution": pytest.approx((4 + 3.25) / 5),
            "spans": [(4, 10)],
        },
        {"word": "the", "cluster": 1, "since_layer": 0, "followers": 1, "contribution": 0, "spans": [(0, 3)]},
    ]
    assert found["clusters"] == [
        {
            "id": 0,
            "kind": "leader",
            "leaders": ["superb"],
            "words": ["superb", "good"],
            "share": 0.5,
            "contribution": pytest.approx((4 + 3.25) / 5),
        },
        {
            "id": 1,
            "kind": "leader",
            "leaders": ["the"],
            "words": ["the", "film"],
            "share": 0.5,
            "contribution": 0,
        },
    ]


def test_sentiment_words_are_in_reading_order_with_places_and_spans(plane: Sentiment) -> None:
    found = answer(plane, "Superb. Not good, superb!", explain="full", trajectory=True)
    assert [word["text"] for word in found["words"]] == ["superb", "not", "not good", "good"]
    superb, no, not_good, good = found["words"]
    assert superb["spans"] == [(0, 6), (18, 24)]
    assert not_good["spans"] == [(8, 16)]
    assert (good["start"], good["end"], good["leader"]) == ([1, 0], [3.25, 0], False)
    assert (not_good["start"], not_good["leader"], not_good["cluster"]) == ([-2, 1], True, no["cluster"])
    assert found["clusters"][good["cluster"]]["leaders"] == ["superb"]
    layers = found["trajectory"]
    assert len(layers) == 3
    assert [layer[3] for layer in layers] == [[1, 0], [2.5, 0], [3.25, 0]]
    assert layers[0] == [word["start"] for word in found["words"]]
    assert layers[2] == [word["end"] for word in found["words"]]


def test_sentiment_tie_is_named_by_its_leaders(tmp_path: Path) -> None:
    model = open_places(tmp_path, {"up": (2, 1), "down": (2, -1), "torn": (1, 0), "fan": (0.25, 0)})
    found = answer(model, "torn up down")
    # torn goes half of the way to (2, 0) twice: 1.75
    assert found["clusters"] == [
        {
            "id": 0,
            "kind": "leader",
            "leaders": ["up"],
            "words": ["up"],
            "share": pytest.approx(1 / 3),
            "contribution": pytest.approx(2 / 3),
        },
        {
            "id": 1,
            "kind": "leader",
            "leaders": ["down"],
            "words": ["down"],
            "share": pytest.approx(1 / 3),
            "contribution": pytest.approx(2 / 3),
        },
        {
            "id": 2,
            "kind": "tie",
            "leaders": ["up", "down"],
            "words": ["torn"],
            "share": pytest.approx(1 / 3),
            "contribution": pytest.approx(1.75 / 3),
        },
    ]
    assert [leader["word"] for leader in found["leaders"]] == ["up", "down"]


def test_sentiment_multiplicity_pulls_a_tie_apart(tmp_path: Path) -> None:
    model = open_places(tmp_path, {"up": (2, 1), "down": (2, -1), "torn": (1, 0)})
    found = answer(model, "torn up up down", explain="full")
    # the mean of up, up, down is (2, 1/3); half of the way there torn prefers up
    torn = found["words"][0]
    assert torn["end"] == pytest.approx([1.75, (1 / 6 + 1) / 2])
    assert found["clusters"][torn["cluster"]]["leaders"] == ["up"]


def test_sentiment_only_the_tied_text_of_a_batch_has_a_tie(tmp_path: Path) -> None:
    model = open_places(tmp_path, {"up": (2, 1), "down": (2, -1), "torn": (1, 0)})
    texts = model.tokenise_many(["up", "torn up down", "torn up"])
    kinds = [[group["kind"] for group in found["clusters"]] for found in model.classify(texts)]
    assert kinds == [["leader"], ["leader", "leader", "tie"], ["leader"]]


def test_sentiment_word_joins_the_leader_at_the_end_of_its_chain(tmp_path: Path) -> None:
    # in the one layer: start -> middle (2 > 1.5 > 1), middle -> peak (7 > 5), peak leads
    model = open_places(tmp_path, {"start": (1, 0), "middle": (2, 1), "peak": (1.5, 4)}, layers=1)
    found = answer(model, "start middle peak", explain="full")
    assert [group["words"][0] for group in found["clusters"]] == ["peak"]
    assert sorted(found["clusters"][0]["words"]) == ["middle", "peak", "start"]
    assert [word["end"] for word in found["words"]] == [[1.5, 0.5], [1.75, 2.5], [1.5, 4]]
    assert [word["leader"] for word in found["words"]] == [False, False, True]


def test_sentiment_leader_that_emerges_later_says_since_when(tmp_path: Path) -> None:
    # the paper's second golden cloud: token 1 becomes a leader at layer 1
    cloud = [
        (1, 1 / 3),
        (-1 / 12, 1 / 12),
        (-1, -1),
        (0, 0.25),
        (-0.3, -0.7),
        (-0.6, -0.9),
        (0.8, 0.1),
        (0.6, 0.15),
    ]
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
    model = open_places(tmp_path, dict(zip(names, cloud, strict=True)), alpha=0.5, layers=30)
    found = answer(model, " ".join(names), explain="full")
    assert {leader["word"]: leader["since_layer"] for leader in found["leaders"]} == {
        "zero": 0,
        "one": 1,
        "two": 0,
    }
    assert found["words"][1]["end"] == pytest.approx([-0.0556, 0.1389], abs=1e-4)


def test_sentiment_of_unknown_words_is_the_bias(plane: Sentiment) -> None:
    for text, tokens in (("zyx qwv", 2), ("... 🙂", 0)):
        found = answer(plane, text, explain="full", trajectory=True)
        assert (found["logit"], found["tokens"], found["unknown"]) == (0.5, tokens, tokens)
        assert (found["leaders"], found["clusters"], found["words"]) == ([], [], [])


def test_sentiment_pseudo_weight_draws_short_texts_to_the_bias(tmp_path: Path) -> None:
    model = open_sentiment(tmp_path, plane_weights(pseudo_weight=3.0))
    found = answer(model, "superb")
    assert found["logit"] == pytest.approx(0.5 + 4 / (3 + 1))
    assert found["leaders"][0]["contribution"] == pytest.approx(1.0)


def test_sentiment_metric_decides_whom_a_word_follows(tmp_path: Path) -> None:
    places = {"east": (2, 0), "north": (0, 2), "word": (0.5, 0.25)}
    plain = open_places(tmp_path / "plain", places)
    bent = open_places(tmp_path / "bent", places, metric=np.diag([1.0, 4.0]).astype(np.float32))
    for model, leader in ((plain, "east"), (bent, "north")):
        found = answer(model, "word east north", explain="full")
        assert found["clusters"][found["words"][0]["cluster"]]["leaders"] == [leader]


def test_sentiment_long_text_is_cut_or_refused(tmp_path: Path) -> None:
    model = open_sentiment(tmp_path, max_length=3)
    assert model.max_length == 3
    found = answer(model, "superb superb superb awful")
    assert (found["truncated"], found["tokens"], found["logit"]) == (True, 3, pytest.approx(4.5))
    with pytest.raises(TooLarge):
        model.tokenise("superb superb superb awful", truncate=False)


def test_sentiment_trajectory_without_words_is_refused(plane: Sentiment) -> None:
    with pytest.raises(InvalidInput, match="full"):
        plane.classify([plane.tokenise("superb")], "leaders", trajectory=True)


@pytest.fixture(scope="module", params=[2, 12, 24])
def random_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sentiment:
    """Stored as floats (2 dimensions) and as eight-bit rows (12, 24)."""
    weights = random_weights(len(RANDOM_WORDS) + 2, request.param, seed=request.param)
    return open_sentiment(tmp_path_factory.mktemp("random"), weights, vocabulary=RANDOM_WORDS)


def random_texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(RANDOM_WORDS, size=size)) for size in rng.integers(1, 150, size=count)]


def test_sentiment_contributions_and_bias_sum_to_the_logit(random_model: Sentiment) -> None:
    for found in random_model.classify(random_model.tokenise_many(random_texts(30, 1)), "full"):
        for parts in (found["clusters"], found["words"]):
            total = found["bias"] + sum(part["contribution"] for part in parts)
            assert total == pytest.approx(found["logit"], abs=2e-5)


def test_sentiment_clusters_cover_every_word_exactly_once(random_model: Sentiment) -> None:
    texts = random_texts(30, 2)
    for text, found in zip(
        texts, random_model.classify(random_model.tokenise_many(texts), "full"), strict=True
    ):
        members = [word for group in found["clusters"] for word in group["words"]]
        assert sorted(members) == sorted(set(text.split()))
        assert sorted(members) == sorted(word["text"] for word in found["words"])
        assert sum(group["share"] for group in found["clusters"]) == pytest.approx(1, abs=1e-5)
        for word in found["words"]:
            group = found["clusters"][word["cluster"]]
            assert word["text"] in group["words"]
            assert word["leader"] == (word["text"] in group["leaders"])
        for leader in found["leaders"]:
            group = found["clusters"][leader["cluster"]]
            assert (group["leaders"], leader["followers"]) == ([leader["word"]], len(group["words"]) - 1)
            assert leader["contribution"] == group["contribution"]
        sizes = [abs(leader["contribution"]) for leader in found["leaders"]]
        assert sizes == sorted(sizes, reverse=True)


def test_sentiment_is_the_same_alone_and_in_any_batch(random_model: Sentiment) -> None:
    words = random_model.tokenise_many(random_texts(24, 3))
    together = random_model.classify(words)
    for text, found in zip(words, together, strict=True):
        (alone,) = random_model.classify([text])
        (quick,) = random_model.classify([text], "none")
        assert alone["label"] == found["label"] == quick["label"]
        assert alone["logit"] == pytest.approx(found["logit"], abs=1e-5)
        assert quick["logit"] == pytest.approx(found["logit"], abs=1e-5)
        assert [group["words"][0] for group in alone["clusters"]] == [
            group["words"][0] for group in found["clusters"]
        ]


def test_sentiment_closed_form_ends_where_the_layers_end(random_model: Sentiment) -> None:
    words = random_model.tokenise_many(random_texts(12, 4))
    for found in random_model.classify(words, "full", trajectory=True):
        ends = np.array([word["end"] for word in found["words"]])
        np.testing.assert_allclose(ends, found["trajectory"][-1], atol=1e-5)
        starts = np.array([word["start"] for word in found["words"]])
        np.testing.assert_array_equal(starts, found["trajectory"][0])


def test_sentiment_follows_the_definition(tmp_path: Path) -> None:
    weights = random_weights(len(RANDOM_WORDS) + 2, 3, seed=9)
    model = open_sentiment(tmp_path, weights, vocabulary=RANDOM_WORDS)
    texts = random_texts(40, 5)
    words = model.tokenise_many(texts)
    for text, found in zip(words, model.classify(words), strict=True):
        expected = refer(weights, text.ids, text.counts.astype(np.float64))
        assert found["logit"] == pytest.approx(expected.logit, abs=1e-5)
        alone = expected.members.sum(axis=1) == 1
        leads = {RANDOM_WORDS[text.ids[i] - 2] for i in np.flatnonzero(expected.members.diagonal() & alone)}
        assert {leader["word"] for leader in found["leaders"]} == leads


@pytest.mark.parametrize(
    ("card", "field"),
    [
        ({"labels": ["negative"]}, "labels"),
        ({"labels": "negative"}, "labels"),
        ({"readout": {}}, "readout"),
        ({"readout": {"bias": "none"}}, "readout"),
    ],
)
def test_sentiment_refuses_a_card_it_cannot_use(tmp_path: Path, card: dict[str, Any], field: str) -> None:
    with pytest.raises(BundleError) as caught:
        open_sentiment(tmp_path, **card)
    assert caught.value.param == field
