"""The encoder: its runs, receptive fields against their definition, known words, and broken bundles."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bundles import TOKENS, WORD_LISTS, FakeGpuRuntime, encoder_model, head_model, write_head
from encoders import RELATIVE, random_encoder

from model_export.bundle import write_bundle
from model_export.encoder.graph import to_onnx
from model_export.encoder.quantization import quantize
from service.errors import BundleError
from service.runtime.bundle import Bundle, read_bundle
from service.runtime.session import Runtime, Session
from service.text.encoder import EncodedText, Encoder, ReceptiveFields, compute_receptive_fields
from service.text.head import Head
from service.text.tokenizer import Vocabulary


@pytest.mark.parametrize(("provider", "runs"), [("cpu", 5), ("cuda", 1)])
def test_batch_is_one_run_on_a_gpu_and_several_that_fit_a_cache_on_a_cpu(provider: str, runs: int) -> None:
    requested: list[tuple[str, ...]] = []

    class RecordingSession(Session):
        def run(self, feeds: Any, outputs: Any) -> Any:
            requested.append(outputs)
            return super().run(feeds, outputs)

    session = Runtime("cpu", 1).open(ENCODER_MODEL.SerializeToString())
    recording_session = RecordingSession(session._session, "encoder", session._watchdog)
    recording_session.provider = provider
    encoder = Encoder(recording_session, Vocabulary(TOKENS, set(), set(), set()))
    chunks = [(np.full(64, 150), np.arange(64))] * 90
    encoder.encode(chunks, output_attentions=False)
    assert requested == [("states", "words")] * runs  # the attention counts are not copied


def test_receptive_fields_are_those_of_the_definition() -> None:
    counts = np.random.default_rng(2).choice(3, (4, 5, 64, 64), p=(0.98, 0.01, 0.01)).astype(np.uint8)
    fields = compute_receptive_fields(counts)
    for b in range(5):
        sets = [{i} for i in range(64)]
        for layer in range(5):
            decoded = [{i for i in range(64) if int(mask) >> i & 1} for mask in fields[layer, b]]
            assert decoded == sets
            if layer < 4:
                attended = [np.flatnonzero(row).tolist() for row in counts[layer, b]]
                sets = [sets[i].union(*(sets[j] for j in attended[i])) for i in range(64)]


def test_receptive_fields_go_from_tokens_of_chunks_to_words_of_the_text(head: Head) -> None:
    text = "the xyzzy film was superb. " * 20
    tokenized = head.encoder.tokenize(text)
    outputs = head.encoder.encode(tokenized.chunks(), output_attentions=True)
    assert len(outputs) > 1
    sizes = np.diff(tokenized.bounds)
    fields = ReceptiveFields([EncodedText(tokenized, outputs)], sizes)
    word_of = np.repeat(np.arange(len(tokenized)), sizes)
    starts = np.cumsum([0, *(len(output.hidden_states) for output in outputs)])
    attended = fields.find_attended(0, 0)
    index, words, layers = (array.tolist() for array in fields.find_read_words(np.arange(len(tokenized))))
    assert index == sorted(index)
    for word in range(len(tokenized)):
        tokens = np.flatnonzero(word_of == word)
        k = int(starts.searchsorted(tokens[0], side="right")) - 1
        counts, start = outputs[k].attention_counts, int(starts[k])
        entered: dict[int, int] = {}
        for layer in range(len(counts) + 1):
            for token in tokens:
                mask = int(outputs[k].receptive_fields[layer, token - start])  # type: ignore[index]
                for i in range(64):
                    if mask >> i & 1 and word_of[start + i] != word:
                        entered.setdefault(int(word_of[start + i]), layer)
        read = [(j, layer) for i, j, layer in zip(index, words, layers, strict=True) if i == word]
        assert dict(read) == entered
        assert read == sorted(read)
        for layer, heads in enumerate(counts):
            count = np.bincount(
                word_of[start : starts[k + 1]], heads[tokens - start].sum(axis=0), minlength=len(tokenized)
            )
            count[word] = 0
            assert attended[word][layer] == [int(j) for j in np.argsort(-count, kind="stable") if count[j]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the film", [1, 1]),
        ("Paris 7 @me", [1, 1, 1]),
        ("xyzzy film", [0, 1]),  # letter by letter
        ("これは film", [0, 1]),
        ("slowly", [1]),  # slow, ##ly
        ("!!! ,", [-1, -1]),
        (":)", [1]),
        ("<br>", []),
    ],
)
def test_encoder_knows_words_that_are_more_than_fragments(head: Head, text: str, expected: list[int]) -> None:
    tokenized = head.encoder.tokenize(text)
    assert head.encoder.known_words([tokenized], np.diff(tokenized.bounds)).tolist() == expected


ENCODER_MODEL = encoder_model()


@pytest.mark.parametrize(
    ("lists", "graph", "problem"),
    [
        ("[", ENCODER_MODEL, "pieces.json is not JSON"),
        ([], ENCODER_MODEL, "pieces.json needs pieces"),
        ({**WORD_LISTS, "names": "paris"}, ENCODER_MODEL, "pieces.json needs names"),
        ({**WORD_LISTS, "groups": [7]}, ENCODER_MODEL, "pieces.json needs groups"),
        ({**WORD_LISTS, "pieces": ["a"]}, ENCODER_MODEL, "at least 101 tokens"),
        (WORD_LISTS, head_model(), "its graph has"),
    ],
)
def test_encoder_refuses_a_broken_vocabulary_by_name(
    tmp_path: Path, lists: object, graph: Any, problem: str
) -> None:
    text = lists if isinstance(lists, str) else json.dumps(lists)
    card = {"name": "reader", "description": "Broken."}
    with pytest.raises(BundleError, match=problem) as exc_info:
        Encoder.load(write_bundle(tmp_path, "encoder", card, graph, text), Runtime("cpu", 1))
    assert exc_info.value.param == ("model.onnx" if graph is not ENCODER_MODEL else "pieces.json")


def test_head_whose_graph_has_other_logits_than_labels_is_refused(tmp_path: Path, head: Head) -> None:
    bundle = write_head(tmp_path)
    bundle = replace(bundle, card={**bundle.card, "labels": ["a", "b", "c"]})
    with pytest.raises(BundleError, match="its graph has 1 logits"):
        Head.load(bundle, Runtime("cpu", 1), head.encoder)


CARD = {"name": "encoder", "description": "Random."}


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """An encoder with a graph for GPUs."""
    weights = quantize(random_encoder(RELATIVE))
    return write_bundle(
        tmp_path, "encoder", CARD, to_onnx(weights), json.dumps(WORD_LISTS), to_onnx(weights, "float")
    )


def test_gpu_runs_the_float_graph_over_the_weights_of_the_integer_graph(bundle: Bundle) -> None:
    assert bundle.float_model is not None
    assert len(bundle.float_model) < len(bundle.model)
    runtime = FakeGpuRuntime()
    on_gpu, on_cpu = Encoder.load(bundle, runtime), Encoder.load(bundle, Runtime("cpu", 1))
    assert runtime.opened == [bundle.float_model]
    chunks = on_cpu.tokenize("The film was not very good. " * 30).chunks()
    gpu, cpu = (encoder.encode(chunks, output_attentions=True) for encoder in (on_gpu, on_cpu))
    for a, b in zip(gpu, cpu, strict=True):
        np.testing.assert_array_equal(a.hidden_states, b.hidden_states)
        np.testing.assert_array_equal(a.attention_counts, b.attention_counts)


def test_encoder_without_a_float_graph_runs_on_a_gpu_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Encoder.load(
        write_bundle(tmp_path, "encoder", CARD, encoder_model(), json.dumps(WORD_LISTS)), FakeGpuRuntime()
    )
    assert "has no graph for GPUs" in caplog.text


@pytest.mark.parametrize("location", ["/etc/passwd", "../../secret", "pieces.json"])
def test_float_graph_that_names_another_file_is_refused(bundle: Bundle, location: str) -> None:
    assert bundle.float_model is not None
    graph = onnx.load_from_string(bundle.float_model)
    (entry,) = [entry for entry in graph.graph.initializer[0].external_data if entry.key == "location"]
    entry.value = location
    with pytest.raises(BundleError, match="not a graph ONNX Runtime can load"):
        Encoder.load(replace(bundle, float_model=graph.SerializeToString()), FakeGpuRuntime())


@pytest.mark.usefixtures("bundle")
def test_float_graph_that_the_card_does_not_describe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "encoder" / "model.float.onnx").write_bytes(b"another")
    with pytest.raises(BundleError, match=r"model\.float\.onnx is not the file"):
        read_bundle(tmp_path / "encoder")
