"""Sentiment and its reason, on models whose answers are known by hand and on random ones."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import PLACES, open_sentiment, plane_weights, random_weights, write_sentiment

from service.engine.runtime import Runtime
from service.errors import BundleError, InvalidInput, TooLarge
from service.texts.runs import How, run_texts
from service.texts.sentiment import LISTS, Sentiment

RANDOM_WORDS = [f"w{letter}{other}" for letter in "abcdefghij" for other in "abcdefghij"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Sentiment:
    return open_sentiment(tmp_path_factory.mktemp("plane"))


def open_places(folder: Path, places: dict[str, tuple[float, float]], **changes: Any) -> Sentiment:
    """A model of such words, each of weight 1."""
    table = {name: (x, y, 1.0) for name, (x, y) in places.items()}
    return open_sentiment(folder, plane_weights(table, {}, **changes))


def answer(model: Sentiment, text: str, *how: Any, **options: Any) -> dict[str, Any]:
    (only,) = model.classify([model.tokenise(text)], *how, **options)
    return only


def near(value: float) -> Any:
    return pytest.approx(value, abs=2e-6)


def test_sentiment_of_a_text_is_the_value_worked_out_by_hand(plane: Sentiment) -> None:
    found = answer(plane, "The superb film the film", "none")
    logit = 0.5 + 4 / (1 + 2 * 2 + 2)  # superb is 4 and weighs 1; the (twice 2) and film (twice 1) are 0
    assert found == {
        "label": "positive",
        "score": near(1 / (1 + math.exp(-logit))),
        "probs": {"negative": near(1 / (1 + math.exp(logit))), "positive": near(1 / (1 + math.exp(-logit)))},
        "undecided": None,
        "logit": near(logit),
        "bias": 0.5,
        "tokens": 5,
        "unknown": 0,
        "truncated": False,
    }


def test_sentiment_leaders_and_clusters_are_those_found_by_hand(plane: Sentiment) -> None:
    found = answer(plane, "the superb film good")
    # good (1, 0) follows superb (4, 0): 4 - 3/4 = 3.25; W = 1 + 2 + 1 + 1
    assert found["leaders"] == [
        {
            "word": "superb",
            "cluster": 0,
            "since_layer": 0,
            "followers": 1,
            "contribution": near(4 / 5),
            "spans": [[4, 10]],
            "context": [0, 20],
        },
        {
            "word": "the",
            "cluster": 1,
            "since_layer": 0,
            "followers": 1,
            "contribution": near(0),
            "spans": [[0, 3]],
            "context": [0, 15],
        },
    ]
    assert found["clusters"] == [
        {
            "id": 0,
            "kind": "leader",
            "leaders": ["superb"],
            "words": ["superb", "good"],
            "size": 2,
            "share": 0.5,
            "contribution": near((4 + 3.25) / 5),
        },
        {
            "id": 1,
            "kind": "leader",
            "leaders": ["the"],
            "words": ["the", "film"],
            "size": 2,
            "share": 0.5,
            "contribution": near(0),
        },
    ]


def test_sentiment_words_are_places_in_reading_order(plane: Sentiment) -> None:
    found = answer(plane, "Superb. not good", "full", trajectory=True)
    assert [word["text"] for word in found["words"]] == ["superb", ".", "not", "good"]
    superb, _mark, _not, good = found["words"]
    assert (superb["spans"], superb["context"], superb["leader"]) == ([[0, 6]], [0, 11], True)
    assert (good["spans"], good["context"]) == ([[12, 16]], [6, 16])
    # behind "not" good stands at (-2, 1): <z, z> = 5 is more than with any other
    assert (good["start"], good["leader"]) == (
        [pytest.approx(-2, abs=0.02), pytest.approx(1, abs=0.02)],
        True,
    )
    layers = found["trajectory"]
    assert len(layers) == 3
    assert layers[0] == [word["start"] for word in found["words"]]
    assert layers[2] == [word["end"] for word in found["words"]]


def test_sentiment_reads_a_word_together_with_the_words_beside_it(plane: Sentiment) -> None:
    assert answer(plane, "good")["label"] == "positive"
    assert answer(plane, "not good")["label"] == "negative"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("film not the film the good", "not the film the good"),
        ("film not the film. the good", ". the good"),  # the clause has ended
        ("not the film the not the good", "not the good"),  # the nearer one counts
        ("not" + " the" * 9 + " good", "not" + " the" * 9 + " good"),
        ("not" + " the" * 10 + " good", "the the good"),  # too far back
    ],
)
def test_sentiment_context_reaches_back_to_the_negator_of_the_clause(
    plane: Sentiment, text: str, seen: str
) -> None:
    start, end = answer(plane, text, "full")["words"][-1]["context"]
    assert text[start:end] == seen


def test_sentiment_word_under_a_negator_is_read_by_another_table(tmp_path: Path) -> None:
    weights = plane_weights()
    good = weights.words.index("good")
    weights.tables[-1, good, 0], weights.out[0, 0] = 1, -1  # further left by one
    model = open_sentiment(tmp_path, weights)
    assert answer(model, "the the the good")["label"] == "positive"
    assert answer(model, "not the the good")["label"] == "negative"
    assert answer(model, "not good")["label"] == "negative"
    assert answer(model, "not. the the good")["label"] == "positive"


def test_sentiment_tie_is_named_by_its_leaders(tmp_path: Path) -> None:
    model = open_places(tmp_path, {"up": (2, 1), "down": (2, -1), "torn": (1, 0)})
    found = answer(model, "torn up down")
    # torn goes half of the way to (2, 0) twice: 1.75
    kinds = [(group["kind"], group["leaders"], group["words"]) for group in found["clusters"]]
    assert kinds == [
        ("leader", ["up"], ["up"]),
        ("leader", ["down"], ["down"]),
        ("tie", ["up", "down"], ["torn"]),
    ]
    assert [group["contribution"] for group in found["clusters"]] == [
        near(2 / 3),
        near(2 / 3),
        near(1.75 / 3),
    ]
    assert [leader["word"] for leader in found["leaders"]] == ["up", "down"]


def test_sentiment_twins_are_one_leader_with_all_their_spans(tmp_path: Path) -> None:
    model = open_places(tmp_path, {"up": (2, 1), "down": (2, -1), "torn": (1, 0)})
    up, down = answer(model, "down up torn up")["leaders"]
    assert (up["word"], up["spans"], up["followers"]) == ("up", [[5, 7], [13, 15]], 1)
    assert up["contribution"] == near(2 * 2 / 4)
    assert (down["word"], down["spans"], down["followers"]) == ("down", [[0, 4]], 0)


def test_sentiment_twins_weigh_as_many_as_they_are_in_a_tie(tmp_path: Path) -> None:
    model = open_places(tmp_path, {"up": (2, 1), "down": (2, -1), "torn": (1, 0)})
    found = answer(model, "torn up up down", "full")
    # the mean of up, up, down is (2, 1/3); half of the way there torn prefers up
    torn = found["words"][0]
    assert torn["end"] == [near(1.75), near((1 / 6 + 1) / 2)]
    assert found["clusters"][torn["cluster"]]["leaders"] == ["up"]


def test_sentiment_words_of_equal_weight_are_named_in_the_order_of_reading(tmp_path: Path) -> None:
    equal = [f"w{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    model = open_places(tmp_path, {"peak": (4, 0), **dict.fromkeys(equal, (1, 0))})
    equal = random.Random(0).sample(equal, len(equal))
    (cluster,) = answer(model, " ".join([*equal, "peak", *equal]))["clusters"]
    assert cluster["words"] == ["peak", *equal[:4]]


def test_sentiment_only_the_tied_text_of_a_batch_has_a_tie(tmp_path: Path) -> None:
    model = open_places(tmp_path, {"up": (2, 1), "down": (2, -1), "torn": (1, 0)})
    texts = model.tokenise_many(["up", "torn up down", "torn up"])
    kinds = [[group["kind"] for group in found["clusters"]] for found in model.classify(texts)]
    assert kinds == [["leader"], ["leader", "leader", "tie"], ["leader"]]


def test_sentiment_word_joins_the_leader_at_the_end_of_its_chain(tmp_path: Path) -> None:
    # in the one layer: start -> middle (2 > 1.5 > 1), middle -> peak (7 > 5), peak leads
    model = open_places(tmp_path, {"start": (1, 0), "middle": (2, 1), "peak": (1.5, 4)}, layers=1)
    found = answer(model, "start middle peak", "full")
    assert [group["words"][0] for group in found["clusters"]] == ["peak"]
    assert sorted(found["clusters"][0]["words"]) == ["middle", "peak", "start"]
    ends = [[near(1.5), near(0.5)], [near(1.75), near(2.5)], [near(1.5), near(4)]]
    assert [word["end"] for word in found["words"]] == ends
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
    found = answer(model, " ".join(names), "full")
    since = {leader["word"]: leader["since_layer"] for leader in found["leaders"]}
    assert since == {"zero": 0, "one": 1, "two": 0}
    assert found["words"][1]["end"] == pytest.approx([-0.0556, 0.1389], abs=1e-4)


@pytest.mark.parametrize("text", ["zyx qwv", "... 🙂", "Paris, 1984", "   .", "!"])
def test_sentiment_says_that_nothing_is_known(plane: Sentiment, text: str) -> None:
    found = answer(plane, text, "full", trajectory=True)
    assert found["undecided"] == "nothing known"
    assert sum(len(word["spans"]) for word in found["words"]) == found["tokens"]


def test_sentiment_of_words_that_are_not_known_is_the_bias(plane: Sentiment) -> None:
    found = answer(plane, "zyx qwv", "full")
    assert (found["logit"], found["tokens"], found["unknown"]) == (0.5, 2, 2)
    assert [word["read_as"] for word in found["words"]] == ["<unknown>", "<unknown>"]
    empty = answer(plane, "<br/>", "full", trajectory=True)
    assert (empty["logit"], empty["leaders"], empty["clusters"], empty["words"]) == (0.5, [], [], [])
    assert empty["trajectory"] == [[], [], []]


def test_sentiment_says_that_labels_are_even(tmp_path: Path) -> None:
    model = open_sentiment(tmp_path, plane_weights(bias=np.zeros(1, np.float32)), even=0.1)
    assert answer(model, "the film")["undecided"] == "even"
    assert answer(model, "superb film")["undecided"] is None


def test_sentiment_says_what_a_word_was_read_as(plane: Sentiment) -> None:
    words = answer(plane, "GOOOD, isn't supurb", "full")["words"]
    assert [word.get("read_as") for word in words] == ["good", "<unknown>", "<unknown>", "not", "superb"]
    assert [word["text"] for word in words] == ["goood", ",", "is", "n't", "supurb"]


def test_sentiment_pseudo_weight_draws_short_texts_to_the_bias(tmp_path: Path) -> None:
    model = open_sentiment(tmp_path, plane_weights(pseudo_weight=3.0))
    found = answer(model, "superb")
    assert found["logit"] == near(0.5 + 4 / (3 + 1))
    assert found["leaders"][0]["contribution"] == near(1.0)


def test_sentiment_calibration_depends_on_the_length(tmp_path: Path) -> None:
    model = open_sentiment(tmp_path, plane_weights(calibration=np.array([1, 1, 0.5], np.float32)))
    assert answer(model, "superb")["logit"] == near(4.5)
    assert [answer(model, text)["bias"] for text in ("good", "good good")] == [0.5, 0.25]
    assert answer(model, "superb superb superb")["logit"] == near(2.25)


def test_sentiment_spans_count_code_points_or_utf16(plane: Sentiment) -> None:
    text = "🙂🙂 Süperb? e\u0301 superb — isn’t good"
    tokens = plane.tokenise(text)
    for unit, size in (("codepoints", 4), ("utf16", 2)):
        coded = text.encode("utf-32-le" if unit == "codepoints" else "utf-16-le")
        (found,) = plane.classify([tokens], "full", spans=unit)  # type: ignore[arg-type]
        cut = [coded[size * a : size * b] for word in found["words"] for a, b in word["spans"]]
        read = [part.decode("utf-32-le" if unit == "codepoints" else "utf-16-le") for part in cut]
        assert [part.lower() for part in read] == [word["text"] for word in found["words"]]
        first, last = found["words"][0]["context"][0], found["words"][-1]["context"][1]
        assert (first, last) == (0, len(coded) // size)


def test_sentiment_long_text_is_cut_or_refused(tmp_path: Path) -> None:
    model = open_sentiment(tmp_path, max_length=3)
    assert model.max_length == 3
    found = answer(model, "superb superb superb awful")
    assert (found["truncated"], found["tokens"], found["logit"]) == (True, 3, near(4.5))
    whole = How(model, "none", False, False, "codepoints")
    cut, kept = run_texts(whole, ["superb superb superb awful", "superb"])
    assert isinstance(cut, TooLarge)
    assert kept["label"] == "positive"  # type: ignore[index]


def test_sentiment_trajectory_without_words_is_refused(plane: Sentiment) -> None:
    with pytest.raises(InvalidInput, match="full"):
        plane.classify([plane.tokenise("superb")], "leaders", trajectory=True)


@pytest.mark.parametrize(
    ("text", "problem"), [("", "empty"), (" \n\t", "empty"), ("good \ud83d", "half a character")]
)
def test_sentiment_names_the_text_it_cannot_read(plane: Sentiment, text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        plane.tokenise_many(["good", text])
    assert caught.value.param == "input[1]"


SHAPES: dict[str, dict[str, Any]] = {
    "one logit": {},
    "three labels": {"outputs": 3},
    "in space": {"dimension": 3, "layers": 2},
}


@pytest.fixture(scope="module", params=SHAPES)
def random_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sentiment:
    shape = SHAPES[request.param]
    labels = ["negative", "positive"] if shape.get("outputs", 1) == 1 else ["bad", "so so", "good"]
    weights = random_weights(RANDOM_WORDS, **shape)
    return open_sentiment(tmp_path_factory.mktemp("random"), weights, labels=labels)


def random_texts(count: int, seed: int, words: list[str] = RANDOM_WORDS) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, size=size)) for size in rng.integers(1, 250, size=count)]


def by_label(value: Any) -> dict[str, Decimal]:
    """Numbers exactly as they are printed."""
    printed = json.loads(json.dumps(value), parse_float=Decimal, parse_int=Decimal)
    return printed if isinstance(printed, dict) else {"": printed}


def test_sentiment_printed_contributions_add_up_to_the_printed_logit(random_model: Sentiment) -> None:
    for found in random_model.classify(random_model.tokenise_many(random_texts(30, 1)), "full"):
        for parts in (found["clusters"], found["words"]):
            total = by_label(found["bias"])
            for part in parts:
                total = {label: total[label] + n for label, n in by_label(part["contribution"]).items()}
            assert total == by_label(found["logit"])
        assert sum(by_label(found["probs"]).values()) == 1
        assert found["label"] == max(found["probs"], key=found["probs"].__getitem__)


def test_sentiment_clusters_cover_every_place_exactly_once(random_model: Sentiment) -> None:
    texts = random_texts(30, 2)
    read = random_model.tokenise_many(texts)
    for text, found in zip(texts, random_model.classify(read, "full"), strict=True):
        assert [word["text"] for word in found["words"]] == text.split()
        sizes = np.bincount([word["cluster"] for word in found["words"]])
        assert sizes.tolist() == [group["size"] for group in found["clusters"]]
        assert sum(group["share"] for group in found["clusters"]) == pytest.approx(1, abs=1e-5)
        for word in found["words"]:
            group = found["clusters"][word["cluster"]]
            assert group["kind"] == "tie" or not word["leader"] or word["text"] in group["leaders"]
        for leader in found["leaders"]:
            group = found["clusters"][leader["cluster"]]
            own = [word for word in found["words"] if word["spans"][0] in leader["spans"]]
            assert (group["leaders"], group["words"][0]) == ([leader["word"]], leader["word"])
            assert all(word["leader"] and word["cluster"] == leader["cluster"] for word in own)
            assert leader["followers"] == group["size"] - len(own)
            total = {label: Decimal(0) for label in by_label(leader["contribution"])}
            for word in own:
                total = {label: total[label] + n for label, n in by_label(word["contribution"]).items()}
            assert by_label(leader["contribution"]) == total


@pytest.mark.parametrize("words", [RANDOM_WORDS, RANDOM_WORDS[:3]], ids=["many words", "three words"])
def test_sentiment_is_the_same_to_the_bit_alone_and_in_any_batch(
    random_model: Sentiment, words: list[str]
) -> None:
    read = random_model.tokenise_many(random_texts(24, 3, words))
    together = random_model.classify(read, "full", trajectory=True)
    for tokens, found in zip(read, together, strict=True):
        (alone,) = random_model.classify([tokens], "full", trajectory=True)
        assert alone == found
        (quick,) = random_model.classify([tokens], "none")
        assert quick == {name: found[name] for name in quick}


@pytest.mark.parametrize(
    ("card", "field"),
    [
        ({"labels": ["negative"]}, "labels"),
        ({"labels": "negative"}, "labels"),
        ({"labels": ["same", "same"]}, "labels"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": True}, "max_length"),
        ({"max_length": None}, "max_length"),
        ({"max_length": 1e3}, "max_length"),
        ({"max_length": 2**62}, "max_length"),
        ({"even": "0.1"}, "even"),
        ({"even": -0.1}, "even"),
        ({"window": [0]}, "window"),
        ({"window": [1, 2]}, "window"),
        ({"window": [0, 2**40]}, "window"),
        ({"window": [0, "1"]}, "window"),
    ],
)
def test_sentiment_refuses_a_card_it_cannot_use(tmp_path: Path, card: dict[str, Any], field: str) -> None:
    with pytest.raises(BundleError) as caught:
        open_sentiment(tmp_path, **card)
    assert caught.value.param == field


@pytest.mark.parametrize("words", [None, 3, "word", {"word": 1}, [1], [["word"]], [None], "gone"])
@pytest.mark.parametrize("name", LISTS)
def test_sentiment_refuses_lists_that_are_none_by_name(tmp_path: Path, name: str, words: object) -> None:
    bundle = write_sentiment(tmp_path)
    held = json.loads(bundle.words or "") | {name: words}
    if words == "gone":
        del held[name]
    with pytest.raises(BundleError, match=rf"^tiny: words.json needs {name} \(a list of words\)$"):
        Sentiment.load(replace(bundle, words=json.dumps(held)), Runtime("cpu", 1))


def test_sentiment_of_the_plane_knows_all_its_places(plane: Sentiment) -> None:
    assert answer(plane, " ".join(PLACES))["unknown"] == 0
