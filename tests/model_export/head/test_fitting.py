"""Fitting a head to a few rows, and its temperature."""

import numpy as np
import pytest

from model_export.head.encoded import WINDOW_WORDS, ZERO, EncodedTexts
from model_export.head.fitting import Task, fit, fit_logit_scale, predict_logits
from service.text.tokenizer import TokenizedText


def test_temperature_makes_confidence_equal_accuracy():
    """Of 100 rows with a logit of 4, 75 are correct: sigmoid(x) = .75 at x = 1.10."""
    logits = np.where(np.arange(100) % 2, 4.0, -4.0)[:, None]
    positive = (np.arange(100) % 2).astype(np.float32)
    positive[:25] = 1 - positive[:25]
    targets = np.stack([1 - positive, positive], 1)
    assert 4 * fit_logit_scale(logits, targets, Task(2, False)) == pytest.approx(1.1, abs=0.15)


def test_temperature_is_not_certain_of_a_few_correct_rows():
    logits = np.array([[6.0], [-6.0]] * 4)
    targets = np.array([[0.0, 1.0], [1.0, 0.0]] * 4, np.float32)
    confidence = 1 / (1 + np.exp(-6 * fit_logit_scale(logits, targets, Task(2, False))))
    assert confidence == pytest.approx(0.9, abs=0.03)


def encoded(first, last):
    """Return texts of five words, one token each, with first and last states [n, 5, W]."""
    states = np.stack([last, first], 2).round().clip(-128, 127).astype(np.int16) + 128
    i = np.arange(5)
    text = TokenizedText("a b c d e", 2 * i, 2 * i + 1, np.arange(6), i, i, 0 * i, False)
    return EncodedTexts([text] * len(states), list(states.astype(np.uint8)))


def test_rows_with_equal_states_give_the_frequencies_of_the_labels():
    """The encoder has one token for all numbers; fitting ended in a singular matrix."""
    state = np.random.default_rng(0).normal(0, 40, (1, 5, 16)).repeat(8, 0)
    targets = np.eye(2, dtype=np.float32)[[0, 0, 0, 1, 0, 0, 0, 1]]
    states, task = encoded(state, state), Task(2, False)
    assert np.allclose(predict_logits(fit(states, targets, task, 60), states), np.log(1 / 3), atol=0.1)


def random_texts(lengths):
    """Return texts of random words of two tokens each."""
    rng, texts, states = np.random.default_rng(2), [], []
    for n in lengths:
        i = np.arange(n)
        texts.append(
            TokenizedText("a " * n, 2 * i, 2 * i + 1, 2 * np.arange(n + 1), np.arange(2 * n), i, i, False)
        )
        states.append(rng.integers(0, 256, (2 * n, 2, 16)).astype(np.uint8))
    return EncodedTexts(texts, states)


def test_step_uses_a_window_of_words_of_a_long_text():
    """All of 400 words were compared with each other, and 500 reviews took more than five minutes."""
    rows, rng = random_texts([7, 400]), np.random.default_rng(0)
    starts = set()
    for _ in range(5):
        last, _, batch = rows.batch(np.arange(2), rng)
        assert batch.max_words == WINDOW_WORDS
        short, long = np.split(last[0].numpy() + ZERO, [14])
        assert np.array_equal(short, rows.states[0][:, 0])
        windows = {k: rows.states[1][k : k + 2 * WINDOW_WORDS, 0] for k in range(0, 800, 2)}
        (start,) = [k for k, window in windows.items() if np.array_equal(window, long)]
        starts.add(start)
    assert len(starts) > 1


def test_logits_of_a_text_do_not_depend_on_the_batch():
    rows = random_texts([3, 90, 1, 40, 700, 2])
    head = fit(rows, np.eye(3, dtype=np.float32)[np.arange(6) % 3], Task(3, False), 0)
    single = [predict_logits(head, rows.take(np.array([i])))[0] for i in range(6)]
    np.testing.assert_allclose(predict_logits(head, rows), single, rtol=1e-12)


@pytest.mark.parametrize("kind", ["first", "last"])
def test_eight_rows_per_label_suffice_for_either_state(kind):
    """One word in five determines the label, in its first or its last state; the other is noise."""
    rng = np.random.default_rng(0)
    states, label = {name: rng.normal(0, 20, (216, 5, 64)) for name in ("first", "last")}, np.arange(216) % 2
    states[kind][:, 2] += np.where(label, 1, -1)[:, None] * rng.choice([-30, 30], 64)
    rows, targets, task = encoded(**states), np.eye(2, dtype=np.float32)[label], Task(2, False)
    head = fit(rows.take(np.arange(16)), targets[:16], task, 60)
    predicted = predict_logits(head, rows.take(np.arange(16, 216)))[:, 0] > 0
    assert (predicted == label[16:]).mean() >= 0.95


def test_checkpoint_has_the_head_of_a_fit_with_as_many_steps():
    """The folds choose the number of steps by their checkpoints."""
    rng = np.random.default_rng(1)
    rows = encoded(*(rng.normal(0, 20, (12, 5, 16)) for _ in range(2)))
    targets, task, checkpoints = np.eye(3, dtype=np.float32)[np.arange(12) % 3], Task(3, False), {}

    def checkpoint(steps, head):
        checkpoints[steps] = predict_logits(head, rows)

    fit(rows, targets, task, 240, checkpoint=checkpoint)
    assert set(checkpoints) == {0, 60, 240}
    assert np.array_equal(predict_logits(fit(rows, targets, task, 60), rows), checkpoints[60])
