"""Results on CUDA are those of the CPU, up to rounding. Skipped without a GPU."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from clouds import run

from benchmarks import gpu
from benchmarks.gpu import (
    count_different_answers,
    measure_chunks,
    measure_clouds,
    measure_sentences,
    torch_layers,
)
from benchmarks.record import PRETRAINED, Table, run_times
from model_export.measure.verify import Verifier
from service.errors import ConfigurationError
from service.loaders import domain_loaders
from service.runtime.bundle import PRETRAINED_DEFAULT, read_bundle
from service.runtime.card import HEAD
from service.runtime.registry import Registry
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER, Settings
from service.text.pipeline import ClassifyOptions, classify_all, make_tasks


def missing_gpu() -> str:
    """Return why there is no GPU, or an empty string."""
    try:
        Runtime("cuda")
    except ConfigurationError as error:
        return error.message
    return ""


MISSING_GPU = missing_gpu()
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING_GPU), reason=MISSING_GPU or "there is a GPU")]

PROVIDERS = [pytest.param("cuda", marks=needs_gpu), "cpu"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("n", "d"), [(500, 2), (3000, 3), (2000, 16)])
def test_layers_are_those_of_torch(provider: Any, n: int, d: int) -> None:
    points = np.random.default_rng(n).standard_normal((n, d))
    actual = run(points, provider, alpha=2.0, max_layers=5, stop="never").points
    expected = torch_layers(torch.from_numpy(points), alpha=2.0, layers=5).numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("provider", PROVIDERS[:1])
def test_sentiment_on_the_gpu_is_that_of_the_cpu(provider: Any) -> None:
    texts = ["A superb film, warm and funny.", "Dull and far too long, a waste of time.", "not good " * 300]
    answers = []
    for device in (provider, "cpu"):
        registry = Registry([PRETRAINED_FOLDER], domain_loaders(Runtime(device), Settings()))
        registry.load(PRETRAINED_DEFAULT)
        options = ClassifyOptions((registry.find(PRETRAINED_DEFAULT, HEAD).model,), "full", trajectory=True)
        answers.append(classify_all(make_tasks(texts, options)))
    assert answers[0] == answers[1]  # to the bit


@pytest.mark.parametrize("provider", PROVIDERS[:1])
def test_graphs_for_gpus_give_what_their_operators_give(provider: Any) -> None:
    encoder, head = (read_bundle(PRETRAINED_FOLDER / name) for name in PRETRAINED)
    texts = ["A superb film, warm and funny.", "Neither good nor bad, and it was long.", "not good " * 60]
    *_, parity = Verifier(head, encoder, provider).compare(texts)
    assert parity.texts == len(texts)
    assert not parity.differences, parity


@pytest.mark.parametrize("provider", PROVIDERS)
def test_benchmark_measures_every_case(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if provider == "cpu":  # where only the program is tested
        monkeypatch.setattr(gpu, "PRETRAINED", ("encoder-small", "sentiment-small"))
    runtime, texts = Runtime(provider), ["A superb film, warm and funny.", "Dull and far too long."]
    tables = [Table(name, "", "1/s", "higher") for name in ("chunks", "sentences", "clouds")]
    clock = partial(run_times, repeats=1)
    measure_chunks(tables[0], runtime, clock, cases=[2])
    measure_sentences(tables[1], runtime, texts, clock)
    measure_clouds(tables[2], runtime, clock, cases=[(200, 2)])
    subjects = [["ours", "soft, torch", "products alone"], ["ours", "ours"], ["ours", "torch"]]
    for table, expected in zip(tables, subjects, strict=True):
        assert [row.subject for row in table.rows] == expected
        assert all(row.median is not None and row.median > 0 for row in table.rows)
    assert count_different_answers(runtime, texts) == 0
