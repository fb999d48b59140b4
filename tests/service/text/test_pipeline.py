"""The way of texts through a reader and a head: what no batch, no step and no reload may change."""

import gc
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from sys import getsizeof
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pytest
from bundles import load_encoder, load_head
from numpy.typing import NDArray

from service.answers.texts import raise_first
from service.answers.writing import write_document
from service.errors import InvalidInput, TooLarge
from service.runtime.session import Session
from service.text.encoder import EncodedText, Encoder, EncoderOutput, ReceptiveFields
from service.text.head import Head
from service.text.pipeline import (
    CHAR_BYTES,
    STEP_TOKENS,
    WORD_BYTES,
    Answer,
    ClassificationTask,
    ClassifyOptions,
    classify_all,
    make_tasks,
    max_words,
    run_batch,
)
from service.text.spans import covered_words, merge_spans, to_codepoints
from service.text.tokenizer import CHUNK_TOKENS, MAX_WORDS, TokenizedText


def answers(head: Head, sources: Sequence[str], **options: Any) -> list[Answer]:
    found = classify_all(
        make_tasks(sources, ClassifyOptions((head,), **{"explain": "full", "trajectory": True, **options}))
    )
    return [answer for (answer,) in found]


class Watched(Encoder):
    """Remembers how many pieces each run saw, and whether the arrays of a run are still here."""

    def encode(self, passages: Any, *, output_attentions: bool) -> Any:
        self.runs.append(sum(len(pieces) for pieces, _ in passages))
        seen = super().encode(passages, output_attentions=output_attentions)
        self.arrays += [ref(each.hidden_states.base) for each in seen]
        return seen


class Counted(Session):
    """Remembers how often it ran."""

    runs = 0

    def run(self, feeds: Any, outputs: Any) -> Any:
        self.runs += 1
        return super().run(feeds, outputs)


@pytest.fixture
def watched(folder: Path) -> Head:
    reader = load_encoder(folder)
    head = load_head(folder, encoder=reader)
    reader.__class__ = Watched
    reader.runs, reader.arrays = [], []
    return head


@pytest.fixture(scope="module")
def many(folder: Path, head: Head) -> Head:
    """A head of three hundred labels."""
    return load_head(folder, "many", encoder=head.encoder, labels=[f"label {i}" for i in range(300)])


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The garbage collector does not come."""
    gc.disable()
    yield
    gc.enable()


def test_answers_are_equal_to_the_bit_alone_in_any_batch_after_a_reload_and_with_two_threads(
    head: Head, sentences: list[str], tmp_path: Path
) -> None:
    chance = random.Random(1)
    long = [" ".join(chance.sample(sentences, n)) for n in (5, 40)]
    texts = [*sentences[:25], *long, "!!!", "<br>", "superb " * 90, "?!" * 200]
    together = answers(head, texts)
    assert [answers(head, [text])[0] for text in texts] == together
    order = chance.sample(range(len(texts)), len(texts))
    for size in (3, 14):
        for first in range(0, len(texts), size):
            some = order[first : first + size]
            assert answers(head, [texts[i] for i in some]) == [together[i] for i in some]
    for threads in (1, 2):
        assert answers(load_head(tmp_path, threads=threads), texts) == together


def test_less_explanation_changes_no_verdict(head: Head, sentences: list[str]) -> None:
    full = answers(head, sentences[:20])
    for explain in ("none", "leaders"):
        less = answers(head, sentences[:20], explain=explain, trajectory=False)
        for short, long in zip(less, full, strict=True):
            assert short | {"leaders": long["leaders"]} == {name: long[name] for name in {*short, "leaders"}}


def test_heads_answer_together_as_each_does_alone_in_one_run(folder: Path, sentences: list[str]) -> None:
    """Whatever labels they have: of two that share a logit, of several, of a plane of other dimensions."""
    reader = load_encoder(folder)
    cards: dict[str, dict[str, Any]] = {
        "two": {},
        "three": {"labels": ["a", "b", "c"], "seed": 1},
        "five": {"labels": ["a", "b", "c", "d", "e"], "d": 4, "seed": 2},
        "both": {"labels": ["a", "b"], "multi_label": {"thresholds": [0.5, 0.4]}, "seed": 3},
    }
    heads = tuple(load_head(folder, name, encoder=reader, **card) for name, card in cards.items())
    texts = [*sentences[:12], "<br>", "the film superb, " * 40]
    for options in ({"explain": "none"}, {"explain": "leaders"}, {"explain": "full", "trajectory": True}):
        alone = [answers(head, texts, **{"trajectory": False, **options}) for head in heads]
        together = classify_all(make_tasks(texts, ClassifyOptions(heads, **options)))
        assert together == [list(each) for each in zip(*alone, strict=True)]
    session = heads[0].session
    session.__class__ = Counted
    classify_all(make_tasks(["a superb film"], ClassifyOptions(heads)))
    assert session.runs == 1


def test_model_that_is_replaced_is_let_go(tmp_path: Path) -> None:
    head = load_head(tmp_path)
    heads = (head, load_head(tmp_path, "second", encoder=head.encoder))
    for asked in (heads[:1], heads):
        classify_all(make_tasks(["a superb film"], ClassifyOptions(asked)))
    reader = ref(head.encoder)
    del head, heads, asked
    gc.collect()
    assert reader() is None


def test_printed_contributions_add_up_to_the_printed_logit(
    folder: Path, head: Head, sentences: list[str]
) -> None:
    three = load_head(folder, "three", encoder=head.encoder, labels=["a", "b", "c"])

    def of(number: Any, label: str) -> Decimal:
        return Decimal(repr(number[label] if isinstance(number, dict) else number))

    for model, labels in ((head, ["-"]), (three, ["a", "b", "c"])):
        for answer in answers(model, sentences[:60], trajectory=False):
            for label in labels:
                for parts in ("words", "clusters"):
                    told = sum(of(part["contribution"], label) for part in answer[parts])
                    assert of(answer["bias"], label) + told == of(answer["logit"], label)


def test_clusters_cover_every_word_exactly_once(head: Head, sentences: list[str]) -> None:
    for answer in answers(head, sentences[60:120], trajectory=False):
        sizes = [0] * len(answer["clusters"])
        for word in answer["words"]:
            sizes[word["cluster"]] += 1
        assert [cluster["size"] for cluster in answer["clusters"]] == sizes
        forces = [abs(cluster["contribution"]) for cluster in answer["clusters"]]
        assert forces == sorted(forces, reverse=True)
        led = [leader["cluster"] for leader in answer["leaders"]]
        assert led == [c["id"] for c in answer["clusters"] if c["kind"] == "leader"]


def test_words_that_were_not_read_may_go_and_a_state_stays_as_it_is(head: Head, sentences: list[str]) -> None:
    """docs/theory.md, section 7: of a thousand sentences, one unread word and all of them."""
    chance, reader = random.Random(5), head.encoder
    readings = [reader.tokenize(sentence) for sentence in sentences]
    asked: list[tuple[TokenizedText, NDArray[np.uint8], int]] = []
    for reading, seen in zip(readings, seen_of(reader, readings, output_attentions=True), strict=True):
        word = chance.randrange(len(reading))
        fields = ReceptiveFields([EncodedText(reading, seen)])
        read = {word, *fields.find_read_words(np.array([word]))[1].tolist()}
        unread = [other for other in range(len(reading)) if other not in read]
        state = states_of(reading, word, seen)
        for gone in (unread, [chance.choice(unread)]) if unread else ():
            left = reading.ablate(np.isin(np.arange(len(reading)), gone))
            asked.append((left, state, word - sum(other < word for other in gone)))
    assert len(asked) > 1000
    left_out = seen_of(reader, [reading for reading, _, _ in asked], output_attentions=False)
    for (reading, state, word), seen in zip(asked, left_out, strict=True):
        assert np.array_equal(states_of(reading, word, seen), state)


def states_of(text: TokenizedText, word: int, outputs: list[EncoderOutput]) -> NDArray[np.uint8]:
    return np.concatenate([each.hidden_states for each in outputs])[slice(*text.bounds[word : word + 2])]


def seen_of(
    reader: Encoder, readings: Sequence[TokenizedText], *, output_attentions: bool
) -> list[list[EncoderOutput]]:
    passages = [reading.chunks() for reading in readings]
    seen = iter(
        reader.encode([passage for each in passages for passage in each], output_attentions=output_attentions)
    )
    return [[next(seen) for _ in each] for each in passages]


def starts_of(leader: Any, answer: Answer) -> list[Any]:
    return [word["position"] for word in answer["words"] if word["spans"] == leader["spans"][:1]]


def moves(head: Head, source: str, answer: Answer, without: list[Any]) -> bool:
    """Whether the first leader begins in another place when these words are left out."""
    leader = answer["leaders"][0]
    ((less,),) = classify_all([ClassificationTask(source, ClassifyOptions((head,), "full"), without=without)])
    return starts_of(leader, less) != starts_of(leader, answer)


def test_leader_stays_in_its_place_when_what_it_has_not_read_goes_and_what_it_read_can_move_it(
    head: Head, sentences: list[str]
) -> None:
    kept_apart, moved = 0, 0
    for source, answer in zip(sentences[:40], answers(head, sentences[:40]), strict=True):
        leader = answer["leaders"][0]
        kept = [leader["spans"][0], *(span for word in leader["read"] for span in word["spans"])]
        unread = [span for word in answer["words"] for span in word["spans"] if span not in kept]
        if unread:
            assert not moves(head, source, answer, unread)
            kept_apart += 1
        for read in leader["read"][:1]:
            moved += moves(head, source, answer, read["spans"])
    assert kept_apart > 20
    assert moved > 3


def test_run_reads_no_more_pieces_than_its_batch_was_planned_with(watched: Head) -> None:
    """A text of marks alone has four times the pieces that its characters let expect."""
    texts = make_tasks(["?!" * 1280] * 4, ClassifyOptions((watched,), "none"))
    reader = watched.encoder
    ends: list[Any] = [None]
    while None in ends:
        planned = sum(min(text.size, STEP_TOKENS) + CHUNK_TOKENS for text in texts)
        ends = run_batch(reader, texts)
        assert reader.runs[-1] <= planned
    assert sum(reader.runs) == 4 * 2560
    assert max(reader.runs) <= 4 * (STEP_TOKENS + CHUNK_TOKENS)


def test_long_text_is_read_in_steps_beside_a_short_one(watched: Head) -> None:
    long, short = make_tasks(["the film was superb. " * 300, "superb"], ClassifyOptions((watched,)))
    reader = watched.encoder
    first = run_batch(reader, [long, short])
    assert first[0] is None
    assert first[1][0]["label"] == "positive"
    steps = 1
    while (end := run_batch(reader, [long])[0]) is None:
        steps += 1
    assert (end[0]["n_words"], steps) == (1500, len(reader.runs) - 1)
    assert steps >= 1500 // (STEP_TOKENS + CHUNK_TOKENS)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("explain", ["none", "leaders", "full"])
def test_states_of_a_run_are_gone_after_it_and_those_of_a_text_with_its_answer(
    watched: Head, explain: Any
) -> None:
    """Of a request of a thousand long texts they would be two gigabytes."""
    texts = make_tasks(["?!" * 500, "superb", "<br>"], ClassifyOptions((watched, watched), explain))
    reader: Any = watched.encoder
    ends: list[Any] = [None] * len(texts)
    while None in ends:
        left = [i for i, end in enumerate(ends) if end is None]
        for i, end in zip(left, run_batch(reader, [texts[i] for i in left]), strict=True):
            ends[i] = end
        assert [array() for array in reader.arrays if array() is not None] == []
    assert len(reader.runs) > 2
    assert [(text.tokenized, text.outputs) for text in texts] == [(None, [])] * 3


@pytest.mark.usefixtures("uncollected")
def test_request_that_is_refused_leaves_nothing_to_the_garbage_collector(head: Head) -> None:
    held: list[ReferenceType[Any]] = []

    def request() -> None:
        body = np.zeros(1)
        held.append(ref(body))
        raise_first(
            classify_all(make_tasks(["superb", "film " * 3000], ClassifyOptions((head,), truncate=False)))
        )

    with suppress(TooLarge):
        request()
    assert held[0]() is None


def test_text_that_is_refused_does_not_fail_its_neighbours(head: Head) -> None:
    options = ClassifyOptions((head,), truncate=False)
    texts = make_tasks(["superb", "film " * 3000, "bad"], options)
    good, long, bad, empty = classify_all([*texts, ClassificationTask("a film", options, without=[(0, 6)])])
    assert [type(long), type(empty)] == [TooLarge, InvalidInput]
    assert [good[0]["label"], bad[0]["label"]] == ["positive", "negative"]


@pytest.mark.parametrize("text", ["", " \n", "half \ud800 a character"])
def test_text_that_cannot_be_read_is_named_by_its_place(head: Head, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make_tasks(["superb", text], ClassifyOptions((head,)))
    assert refused.value.param == "input[1]"


def test_spans_count_code_points_or_utf16(head: Head) -> None:
    text = "🙂 was superb 🙂"
    (points,) = answers(head, [text])
    (units,) = answers(head, [text], offset_unit="utf16")
    assert [word["spans"][0] for word in points["words"]] == [[0, 1], [2, 5], [6, 12], [13, 14]]
    encoded = text.encode("utf-16-le")
    for word in units["words"]:
        begin, end = word["spans"][0]
        assert encoded[2 * begin : 2 * end].decode("utf-16-le") == word["word"]
    spans = [tuple(word["spans"][0]) for word in units["words"]]
    assert to_codepoints(text, spans, "utf16") == [tuple(word["spans"][0]) for word in points["words"]]
    assert to_codepoints(text, [(1, 2)], "utf16") == [(0, 1)]  # half a character


@pytest.mark.parametrize(
    "text",
    [
        "?!" * 1000,
        "a1" * 2000,
        "superb film, " * 400,
        "x" * 200_000,  # row 7 of the third attack: priced as 5 kB, and 600 kB long
        "\U00010400" * 50_000,
        " ".join(chr(97 + i % 26) * 3000 for i in range(64)),
    ],
    ids=["marks", "letters and digits", "words", "a long word", "letters of four bytes", "long words"],
)
@pytest.mark.parametrize(("explain", "trajectory"), [("leaders", False), ("full", False), ("full", True)])
def test_price_of_an_answer_covers_it_as_json(head: Head, text: str, explain: Any, trajectory: bool) -> None:
    (answer,) = answers(head, [text], explain=explain, trajectory=trajectory)
    assert len(answer.get("words", ())) <= max_words(text)
    size = sum(map(len, write_document(answer)))
    assert size <= ClassifyOptions((head,), explain, trajectory).estimated_response_bytes([text])


def test_price_of_an_answer_grows_with_heads_and_words_that_are_read(head: Head) -> None:
    full, whole = ClassifyOptions((head,), "full"), ClassifyOptions((head,), "full", trajectory=True)
    assert whole.estimated_response_bytes(["?!"]) > full.estimated_response_bytes(["?!"])
    assert full.estimated_response_bytes(["?!"]) > full.estimated_response_bytes(["a"]) + WORD_BYTES
    most = 2 * MAX_WORDS * (CHAR_BYTES["full"] + 1) + 1
    once, twice = (full.estimated_response_bytes(["! " * MAX_WORDS * n]) for n in (1, 2))
    assert twice < once + most
    text = getsizeof("x")  # is here once
    one, two = (ClassifyOptions((head,) * n).estimated_response_bytes(["x"]) - text for n in (1, 2))
    assert two == 2 * one


def test_price_covers_the_text_itself_which_one_emoji_makes_four_times_as_long(head: Head) -> None:
    wide = "x" * 199_999 + "🙂"
    assert ClassifyOptions((head,), "none").estimated_response_bytes([wide]) > 4 * len(wide)


def test_words_of_a_million_spans_are_found_at_once(head: Head) -> None:
    tokenized = head.encoder.tokenize("the film was superb. " * 512)
    spans = [(i % 9_000, i % 9_000 + 1 + i % 3) for i in range(1_000_000)]
    chance = random.Random(4)
    few = chance.sample(spans, 40)
    slow = [
        any(a < end and b > start for a, b in few)
        for start, end in zip(tokenized.starts, tokenized.ends, strict=False)
    ]
    assert covered_words(tokenized, few).tolist() == slow
    assert merge_spans(few) == merge_spans(merge_spans(few))
    began = time.process_time()
    covered_words(tokenized, spans)
    assert time.process_time() - began < 5  # it was 25 seconds for each of them


def test_words_times_labels_are_bounded(many: Head) -> None:
    fine, refused = classify_all(make_tasks(["superb", "film " * 2_000], ClassifyOptions((many,))))
    assert fine[0]["label"] in many.rule.labels
    assert isinstance(refused, TooLarge)
    assert refused.param == "input[1]"
    assert refused.message.endswith("2000 words and the models 300 labels: at most 500000 of both multiplied")


def test_run_tokenizes_a_bounded_number_of_characters(head: Head) -> None:
    texts = make_tasks(["film " * 40_000] * 3, ClassifyOptions((head,), "none"))
    run_batch(head.encoder, texts)
    assert [task.tokenized is not None for task in texts] == [True, False, False]


def test_run_answers_a_bounded_number_of_words_times_labels(many: Head) -> None:
    """Of 32 models with 100 labels sixteen texts were answered in one run; others waited a minute."""
    tasks = make_tasks(["film " * 120] * 20, ClassifyOptions((many,)))
    runs = []
    while tasks:
        results = run_batch(many.encoder, tasks)
        runs.append(sum(result is not None for result in results))
        tasks = [task for task, result in zip(tasks, results, strict=True) if result is None]
    assert runs == [13, 7]  # 13 x 120 x 300 is 468,000


def test_words_times_labels_of_a_request_are_bounded(many: Head, head: Head) -> None:
    with pytest.raises(TooLarge, match="the models 300 labels: at most 20000000 of both"):
        make_tasks(["film " * 1_000] * 70, ClassifyOptions((many,)))
    assert len(make_tasks(["film " * 1_000] * 70, ClassifyOptions((head,)))) == 70


@pytest.mark.parametrize("explain", ["none", "leaders", "full"])
def test_price_covers_every_label(many: Head, explain: Any) -> None:
    text = "superb film, " * 20
    (answer,) = answers(many, [text], explain=explain, trajectory=False)
    size = sum(map(len, write_document(answer)))
    assert size <= ClassifyOptions((many,), explain).estimated_response_bytes([text])
