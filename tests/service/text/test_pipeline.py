"""The text pipeline: answers do not depend on batches, steps or reloads, and the work is bounded."""

import gc
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import pytest
from bundles import load_encoder, load_head

from hardmax import Local
from service.errors import InvalidInput, TooLarge
from service.runtime.batcher import MAX_STEP_SIZE
from service.runtime.session import Session
from service.text.encoder import Encoder
from service.text.head import Head
from service.text.pipeline import (
    Answer,
    ClassificationTask,
    ClassifyOptions,
    classify_all,
    make_tasks,
    max_words,
    run_batch,
)
from service.text.spans import to_codepoints
from service.text.tokenizer import CHUNK_TOKENS
from service.wire.documents import MAX_ANSWER_BYTES, MAX_JSON_BYTES, write
from service.wire.prices import MAX_ANSWERS, MAX_EXPLAINED_WORDS, check_answers
from service.wire.texts import raise_first


def answers(head: Head, sources: Sequence[str], **options: Any) -> list[Answer]:
    results = classify_all(
        make_tasks(sources, ClassifyOptions((head,), **{"explain": "full", "trajectory": True, **options}))
    )
    return [answer for (answer,) in results]


class RecordingEncoder(Encoder):
    """An encoder that records the number of tokens of its runs, and weak references to their arrays."""

    def encode(self, chunks: Any, *, output_attentions: bool) -> Any:
        self.runs.append(sum(len(tokens) for tokens, _ in chunks))
        outputs = super().encode(chunks, output_attentions=output_attentions)
        self.arrays += [ref(output.hidden_states.base) for output in outputs]
        return outputs


class CountingSession(Session):
    """A session that counts its runs."""

    runs = 0

    def run(self, feeds: Any, outputs: Any) -> Any:
        self.runs += 1
        return super().run(feeds, outputs)


@pytest.fixture
def recording_head(folder: Path) -> Head:
    """A head on a recording encoder."""
    encoder = load_encoder(folder)
    head = load_head(folder, encoder=encoder)
    encoder.__class__ = RecordingEncoder
    encoder.runs, encoder.arrays = [], []
    return head


@pytest.fixture(scope="module")
def wide_head(folder: Path, head: Head) -> Head:
    """A head with three hundred labels."""
    return load_head(folder, "many", encoder=head.encoder, labels=[f"label {i}" for i in range(300)])


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Disable the garbage collector."""
    gc.disable()
    yield
    gc.enable()


def test_answers_are_equal_to_the_bit_alone_in_any_batch_after_a_reload_and_with_two_threads(
    head: Head, sentences: list[str], tmp_path: Path
) -> None:
    rng = random.Random(1)
    long = [" ".join(rng.sample(sentences, n)) for n in (5, 40)]
    texts = [*sentences[:25], *long, "!!!", "<br>", "superb " * 90, "?!" * 200]
    expected = answers(head, texts)
    assert [answers(head, [text])[0] for text in texts] == expected
    order = rng.sample(range(len(texts)), len(texts))
    for size in (3, 14):
        for start in range(0, len(texts), size):
            batch = order[start : start + size]
            assert answers(head, [texts[i] for i in batch]) == [expected[i] for i in batch]
    for threads in (1, 2):
        assert answers(load_head(tmp_path, threads=threads), texts) == expected


def test_less_explanation_changes_no_verdict(head: Head, sentences: list[str]) -> None:
    full = answers(head, sentences[:20])
    for explain in ("none", "leaders"):
        partial = answers(head, sentences[:20], explain=explain, trajectory=False)
        for short, long in zip(partial, full, strict=True):
            assert short | {"leaders": long["leaders"]} == {name: long[name] for name in {*short, "leaders"}}


def test_heads_answer_together_as_separately_in_one_run(folder: Path, sentences: list[str]) -> None:
    """The heads have two labels of one logit, several labels, more dimensions, or labels that coexist."""
    encoder = load_encoder(folder)
    cards: dict[str, dict[str, Any]] = {
        "two": {},
        "three": {"labels": ["a", "b", "c"], "seed": 1},
        "five": {"labels": ["a", "b", "c", "d", "e"], "d": 4, "seed": 2},
        "both": {"labels": ["a", "b"], "multi_label": {"thresholds": [0.5, 0.4]}, "seed": 3},
    }
    heads = tuple(load_head(folder, name, encoder=encoder, **card) for name, card in cards.items())
    texts = [*sentences[:12], "<br>", "the film superb, " * 40]
    for options in (
        {"explain": "none"},
        {"explain": "none", "trajectory": True},
        {"explain": "leaders", "trajectory": True},
        {"explain": "full", "trajectory": True},
    ):
        separate = [answers(head, texts, **{"trajectory": False, **options}) for head in heads]
        together = classify_all(make_tasks(texts, ClassifyOptions(heads, **options)))
        assert together == [list(row) for row in zip(*separate, strict=True)]
    session = heads[0].session
    session.__class__ = CountingSession
    classify_all(make_tasks(["a superb film"], ClassifyOptions(heads)))
    assert session.runs == 1


def test_replaced_model_is_released(tmp_path: Path) -> None:
    head = load_head(tmp_path)
    heads = (head, load_head(tmp_path, "second", encoder=head.encoder))
    for subset in (heads[:1], heads):
        classify_all(make_tasks(["a superb film"], ClassifyOptions(subset)))
    encoder = ref(head.encoder)
    del head, heads, subset
    gc.collect()
    assert encoder() is None


def test_printed_contributions_add_up_to_the_printed_logit(
    folder: Path, head: Head, sentences: list[str]
) -> None:
    three = load_head(folder, "three", encoder=head.encoder, labels=["a", "b", "c"])

    def as_decimal(number: Any, label: str) -> Decimal:
        return Decimal(repr(number[label] if isinstance(number, dict) else number))

    for model, labels in ((head, ["-"]), (three, ["a", "b", "c"])):
        for answer in answers(model, sentences[:60], trajectory=False):
            for label in labels:
                for parts in ("words", "clusters"):
                    total = sum(as_decimal(part["contribution"], label) for part in answer[parts])
                    assert as_decimal(answer["bias"], label) + total == as_decimal(answer["logit"], label)


def positions_of(leader: Any, answer: Answer) -> list[Any]:
    return [word["position"] for word in answer["words"] if word["spans"] == leader["spans"][:1]]


def leader_moves(head: Head, source: str, answer: Answer, without: list[Any]) -> bool:
    """Return whether the position of the first leader changes when these words are left out."""
    leader = answer["leaders"][0]
    task = ClassificationTask(source, ClassifyOptions((head,), "full"), without=without)
    ((ablated,),) = classify_all([task])
    return positions_of(leader, ablated) != positions_of(leader, answer)


def test_leader_position_depends_on_words_that_it_has_read_and_on_no_others(
    head: Head, sentences: list[str]
) -> None:
    n_unread, n_moved = 0, 0
    for source, answer in zip(sentences[:40], answers(head, sentences[:40]), strict=True):
        leader = answer["leaders"][0]
        read_spans = [leader["spans"][0], *(span for word in leader["read"] for span in word["spans"])]
        unread = [span for word in answer["words"] for span in word["spans"] if span not in read_spans]
        if unread:
            assert not leader_moves(head, source, answer, unread)
            n_unread += 1
        for word in leader["read"][:1]:
            n_moved += leader_moves(head, source, answer, word["spans"])
    assert n_unread > 20
    assert n_moved > 3


def test_positions_of_equal_leaders_depend_on_what_any_of_them_has_read(pretrained: Local) -> None:
    """The second "wonderful" is in another chunk; its words were once missing from `read`."""
    sentence = (
        "The acting in this movie was absolutely wonderful and the story moved me deeply from the very "
    )
    sentence += (
        "first scene until the end . We went there on a rainy day with our friends and then we walked "
    )
    sentence += "home slowly past the river and the old church near the station . "
    options = {"model": "sentiment-small", "explain": "full"}
    answer = pretrained.classify(2 * sentence, **options)
    twins = [leader for leader in answer.leaders if len(leader.spans) > 1]
    assert len(twins) > 1
    for leader in twins:
        read = {span for word in leader.read for span in word.spans} | set(leader.spans)
        unread = [word.spans[0] for word in answer.words if word.spans[0] not in read]
        ablated = pretrained.classify(2 * sentence, **options, without=unread)
        positions = [
            {word.spans[0]: word.position for word in part.words if word.spans[0] in leader.spans}
            for part in (answer, ablated)
        ]
        assert positions[0] == positions[1]


def test_run_encodes_no_more_tokens_than_its_batch_was_planned_with(recording_head: Head) -> None:
    """A text of punctuation alone has four times the tokens that its length suggests."""
    texts = make_tasks(["?!" * 1280] * 4, ClassifyOptions((recording_head,), "none"))
    encoder = recording_head.encoder
    results: list[Any] = [None]
    while None in results:
        planned = sum(min(text.size, MAX_STEP_SIZE) + CHUNK_TOKENS for text in texts)
        results = run_batch(encoder, texts)
        assert encoder.runs[-1] <= planned
    assert sum(encoder.runs) == 4 * 2560
    assert max(encoder.runs) <= 4 * (MAX_STEP_SIZE + CHUNK_TOKENS)


def test_long_text_is_encoded_in_steps_next_to_a_short_one(recording_head: Head) -> None:
    long, short = make_tasks(["the film was superb. " * 300, "superb"], ClassifyOptions((recording_head,)))
    encoder = recording_head.encoder
    results = run_batch(encoder, [long, short])
    assert results[0] is None
    assert results[1][0]["label"] == "positive"
    assert long.size + long.done == 1500 + 1  # all that is left counts for the queue
    n_steps = 1
    while (result := run_batch(encoder, [long])[0]) is None:
        n_steps += 1
    assert (result[0]["n_words"], n_steps) == (1500, len(encoder.runs) - 1)
    assert n_steps >= 1500 // (MAX_STEP_SIZE + CHUNK_TOKENS)


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("explain", ["none", "leaders", "full"])
def test_states_are_released_after_their_run_or_with_the_answer_of_their_text(
    recording_head: Head, explain: Any
) -> None:
    """The states of a thousand long texts would take two gigabytes."""
    texts = make_tasks(["?!" * 500, "superb", "<br>"], ClassifyOptions((recording_head,) * 2, explain))
    encoder: Any = recording_head.encoder
    results: list[Any] = [None] * len(texts)
    while None in results:
        pending = [i for i, result in enumerate(results) if result is None]
        for i, result in zip(pending, run_batch(encoder, [texts[i] for i in pending]), strict=True):
            results[i] = result
        assert [array() for array in encoder.arrays if array() is not None] == []
    assert len(encoder.runs) > 2
    assert [(text.tokenized, text.outputs) for text in texts] == [(None, [])] * 3


@pytest.mark.usefixtures("no_gc")
def test_refused_request_leaves_nothing_to_the_garbage_collector(head: Head) -> None:
    references: list[ReferenceType[Any]] = []

    def request() -> None:
        body = np.zeros(1)
        references.append(ref(body))
        raise_first(
            classify_all(make_tasks(["superb", "film " * 3000], ClassifyOptions((head,), truncate=False)))
        )

    with suppress(TooLarge):
        request()
    assert references[0]() is None


def test_text_that_is_refused_does_not_fail_its_neighbours(head: Head) -> None:
    options = ClassifyOptions((head,), truncate=False)
    texts = make_tasks(["superb", "film " * 3000, "bad"], options)
    superb, long, bad, empty = classify_all([*texts, ClassificationTask("a film", options, without=[(0, 6)])])
    assert [type(long), type(empty)] == [TooLarge, InvalidInput]
    assert [superb[0]["label"], bad[0]["label"]] == ["positive", "negative"]


def test_spans_count_code_points_or_utf16(head: Head) -> None:
    text = "🙂 was superb 🙂"
    (codepoints,) = answers(head, [text])
    (utf16,) = answers(head, [text], offset_unit="utf16")
    assert [word["spans"][0] for word in codepoints["words"]] == [[0, 1], [2, 5], [6, 12], [13, 14]]
    encoded = text.encode("utf-16-le")
    for word in utf16["words"]:
        start, end = word["spans"][0]
        assert encoded[2 * start : 2 * end].decode("utf-16-le") == word["word"]
    spans = [tuple(word["spans"][0]) for word in utf16["words"]]
    assert to_codepoints(text, spans, "utf16") == [tuple(word["spans"][0]) for word in codepoints["words"]]
    assert to_codepoints(text, [(1, 2)], "utf16") == [(0, 1)]  # half a character


@pytest.mark.parametrize(
    "text",
    [
        "?!" * 1000,
        "a1" * 2000,
        "superb film, " * 400,
        "x" * 200_000,  # was estimated as 5 kB, and is 600 kB long
        "\U00010400" * 50_000,
        " ".join(chr(97 + i % 26) * 3000 for i in range(64)),
    ],
    ids=["marks", "letters and digits", "words", "a long word", "letters of four bytes", "long words"],
)
@pytest.mark.parametrize(("explain", "trajectory"), [("leaders", False), ("full", False), ("full", True)])
def test_answers_within_the_bounds_are_short_enough(
    head: Head, text: str, explain: Any, trajectory: bool
) -> None:
    """As many answers as this one as a request may ask for have less than 64 MB."""
    (answer,) = answers(head, [text], explain=explain, trajectory=trajectory)
    assert len(answer.get("words", ())) <= max_words(text)
    shares = [1 / MAX_ANSWERS, len(text.encode()) / MAX_JSON_BYTES]
    if explain == "full":
        shares.append(max_words(text) / MAX_EXPLAINED_WORDS)
    assert len(write(answer)) <= MAX_ANSWER_BYTES * max(shares)


def test_words_times_labels_are_bounded(wide_head: Head) -> None:
    superb, error = classify_all(make_tasks(["superb", "film " * 2_000], ClassifyOptions((wide_head,))))
    assert superb[0]["label"] in wide_head.rule.labels
    assert isinstance(error, TooLarge)
    assert error.param == "input[1]"
    assert error.message.endswith("2000 words and the models 300 labels: at most 500000 of both multiplied")


def test_run_tokenizes_a_bounded_number_of_characters(head: Head) -> None:
    texts = make_tasks(["film " * 40_000] * 3, ClassifyOptions((head,), "none"))
    run_batch(head.encoder, texts)
    assert [task.tokenized is not None for task in texts] == [True, False, False]


def test_run_answers_a_bounded_number_of_words_times_labels(wide_head: Head) -> None:
    """One run once answered sixteen texts with 32 models of 100 labels, and others waited a minute."""
    tasks = make_tasks(["film " * 120] * 20, ClassifyOptions((wide_head,)))
    runs = []
    while tasks:
        results = run_batch(wide_head.encoder, tasks)
        runs.append(sum(result is not None for result in results))
        tasks = [task for task, result in zip(tasks, results, strict=True) if result is None]
    assert runs == [13, 7]  # 13 x 120 x 300 is 468,000


def test_words_times_labels_of_a_request_are_bounded(wide_head: Head, head: Head) -> None:
    with pytest.raises(TooLarge, match="words x labels, the limit is 20000000"):
        check_answers(make_tasks(["film " * 1_000] * 70, ClassifyOptions((wide_head,))))
    check_answers(make_tasks(["film " * 1_000] * 70, ClassifyOptions((head,))))


@pytest.mark.parametrize("explain", ["none", "full"])
def test_long_text_says_whether_its_chunks_disagree(head: Head, explain: Any) -> None:
    rng = random.Random(5)
    words = [rng.choice(["superb", "awful", "film", "the", "time"]) for _ in range(300)]
    texts = [" ".join(words[:n]) + "." for n in (20, 150, 200, 300)]
    texts += [" ".join(["superb"] * 150 + ["awful"] * 150), " ".join(["superb"] * 300)]
    full = ClassifyOptions((head,), "full")
    expected = []
    for (answer,) in raise_first(classify_all(make_tasks(texts, full))):
        text = head.encoder.tokenize(texts[len(expected)])
        sums: dict[int, Decimal] = {}
        for word, first in zip(answer["words"], text.bounds[:-1].tolist(), strict=True):
            chunk = int(text.chunk_ids[first])
            sums[chunk] = sums.get(chunk, Decimal(0)) + Decimal(str(word["contribution"]))
        high, low = max(sums.values()), -min(sums.values())
        expected.append(None if len(sums) == 1 else 0 < max(high, low) <= 5 * min(high, low))
    answers = raise_first(classify_all(make_tasks(texts, ClassifyOptions((head,), explain))))
    assert [answer.get("mixed") for (answer,) in answers] == expected
    assert set(expected) == {None, True, False}
