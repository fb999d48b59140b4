"""What a plane learns of a few rows, and how sure it may be of it."""

import numpy as np
import pytest

from model_export.head.encoded import WINDOW_WORDS, ZERO, EncodedTexts
from model_export.head.fitting import Task, fit, predict_logits, temperature
from service.text.tokenizer import TokenizedText


def test_temperature_makes_said_what_is_right():
    """Of 100 rows at a logit of 4, 75 are right: sigmoid(x) = .75 at x = 1.10."""
    logits = np.where(np.arange(100) % 2, 4.0, -4.0)[:, None]
    positive = (np.arange(100) % 2).astype(np.float32)
    positive[:25] = 1 - positive[:25]
    targets = np.stack([1 - positive, positive], 1)
    assert 4 * temperature(logits, targets, Task(2, False)) == pytest.approx(1.1, abs=0.15)


def test_few_rows_that_are_all_right_do_not_make_it_certain():
    logits = np.array([[6.0], [-6.0]] * 4)
    targets = np.array([[0.0, 1.0], [1.0, 0.0]] * 4, np.float32)
    sure = 1 / (1 + np.exp(-6 * temperature(logits, targets, Task(2, False))))
    assert sure == pytest.approx(0.9, abs=0.03)


def seen(first, last):
    """States of texts of five words, one piece each: [n, 5, W] of each kind."""
    found = np.stack([last, first], 2).round().clip(-128, 127).astype(np.int16) + 128
    at = np.arange(5)
    reading = TokenizedText("a b c d e", 2 * at, 2 * at + 1, np.arange(6), at, at, 0 * at, False)
    return EncodedTexts([reading] * len(found), list(found.astype(np.uint8)))


def test_rows_that_all_read_alike_teach_no_more_than_how_many_there_are():
    """Numbers are one word to the reader; the probe ended in a singular matrix."""
    one = np.random.default_rng(0).normal(0, 40, (1, 5, 16)).repeat(8, 0)
    targets = np.eye(2, dtype=np.float32)[[0, 0, 0, 1, 0, 0, 0, 1]]
    states, task = seen(one, one), Task(2, False)
    assert np.allclose(predict_logits(fit(states, targets, task, 60), states), np.log(1 / 3), atol=0.1)


def of_lengths(lengths):
    """Texts of random words of two pieces each."""
    rng, readings, found = np.random.default_rng(2), [], []
    for n in lengths:
        at = np.arange(n)
        readings.append(
            TokenizedText("a " * n, 2 * at, 2 * at + 1, 2 * np.arange(n + 1), np.arange(2 * n), at, at, False)
        )
        found.append(rng.integers(0, 256, (2 * n, 2, 16)).astype(np.uint8))
    return EncodedTexts(readings, found)


def test_step_looks_at_some_words_in_a_row_of_a_long_text():
    """All of 400 words were compared with all others, and 500 reviews took more than five minutes."""
    rows, rng = of_lengths([7, 400]), np.random.default_rng(0)
    begins = set()
    for _ in range(5):
        last, _, batch = rows.batch(np.arange(2), rng)
        assert batch.max_words == WINDOW_WORDS
        short, long = np.split(last[0].numpy() + ZERO, [14])
        assert np.array_equal(short, rows.states[0][:, 0])
        (begin,) = [
            k for k in range(0, 800, 2) if np.array_equal(rows.states[1][k : k + 2 * WINDOW_WORDS, 0], long)
        ]
        begins.add(begin)
    assert len(begins) > 1


def test_every_text_has_its_own_logits_whatever_stands_beside_it():
    rows = of_lengths([3, 90, 1, 40, 700, 2])
    plane = fit(rows, np.eye(3, dtype=np.float32)[np.arange(6) % 3], Task(3, False), 0)
    alone = [predict_logits(plane, rows.take(np.array([i])))[0] for i in range(6)]
    np.testing.assert_allclose(predict_logits(plane, rows), alone, rtol=1e-12)


@pytest.mark.parametrize("where", ["first", "last"])
def test_eight_rows_teach_what_either_state_tells(where):
    """One word in five tells the label, in the first state or in the last; the other is noise."""
    rng = np.random.default_rng(0)
    states, label = {kind: rng.normal(0, 20, (216, 5, 64)) for kind in ("first", "last")}, np.arange(216) % 2
    states[where][:, 2] += np.where(label, 1, -1)[:, None] * rng.choice([-30, 30], 64)
    rows, targets, task = seen(**states), np.eye(2, dtype=np.float32)[label], Task(2, False)
    plane = fit(rows.take(np.arange(16)), targets[:16], task, 60)
    said = predict_logits(plane, rows.take(np.arange(16, 216)))[:, 0] > 0
    assert (said == label[16:]).mean() >= 0.95


def test_plane_of_many_steps_is_the_one_that_was_seen_on_the_way():
    """The folds choose a number of steps by what they saw; learning just as many gives that plane."""
    rng = np.random.default_rng(1)
    rows = seen(*(rng.normal(0, 20, (12, 5, 16)) for _ in range(2)))
    targets, task, on_the_way = np.eye(3, dtype=np.float32)[np.arange(12) % 3], Task(3, False), {}
    fit(
        rows,
        targets,
        task,
        240,
        checkpoint=lambda steps, plane: on_the_way.update({steps: predict_logits(plane, rows)}),
    )
    assert set(on_the_way) == {0, 60, 240}
    assert np.array_equal(predict_logits(fit(rows, targets, task, 60), rows), on_the_way[60])


def test_steps_on_a_few_rows_turn_the_directions_of_the_probe_little():
    """Weights of wide features are small: steps of the usual size replaced what the probe had found."""
    rng, found = np.random.default_rng(3), {}
    rows = seen(*(rng.normal(0, 30, (24, 5, 256)) for _ in range(2)))
    targets = np.eye(3, dtype=np.float32)[np.arange(24) % 3]

    def checkpoint(steps, head):
        found[steps] = head.projection.weight.detach()[:-1].clone()

    fit(rows, targets, Task(3, False), 60, checkpoint=checkpoint)
    assert 0 < (found[60] - found[0]).norm() < 0.2 * found[0].norm()
