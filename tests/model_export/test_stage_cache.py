"""The cache of training stages: what it stores, and when it is used."""

from dataclasses import replace

import numpy as np
import pytest
from encoders import random_encoder

from model_export.data.training_set import PackedTexts, TrainingSet
from model_export.stage_cache import StageCache
from model_export.writing import atomic_write
from service.text.tokenizer import TokenizedText


class Stopped(Exception):
    pass


class Unwritable:
    """Raises an error when it is saved, as a full disk does."""

    def __reduce__(self):
        raise Stopped


def test_file_is_replaced_once_it_is_complete(tmp_path):
    file = tmp_path / "new" / "file.npy"

    def write(content, *, stop=False):
        with atomic_write(file) as out:
            out.write(content)
            if stop:
                raise Stopped

    write(b"whole")
    with pytest.raises(Stopped):
        write(b"ha", stop=True)
    assert file.read_bytes() == b"whole"


def test_stage_that_was_stopped_while_it_was_written_resumes_from_its_checkpoint(tmp_path):
    """Half a file was used as the result of the stage, and the checkpoint was lost."""
    events = []

    def make(checkpoint, value=1):
        events.append(checkpoint.exists())
        checkpoint.write_text("so far")
        return {"value": value}

    with pytest.raises(Stopped):
        StageCache(tmp_path, events.append).get_or_run("soft", [7], lambda path: make(path, Unwritable()))
    assert StageCache(tmp_path, events.append).get_or_run("soft", [7], make) == {"value": 1}
    assert StageCache(tmp_path, events.append).get_or_run("soft", [7], make) == {"value": 1}
    (file,) = tmp_path.glob("*.pt")
    assert events == [False, True, f"soft: taken from {file.name}"]
    assert not list(tmp_path.glob("*.checkpoint"))


TOKENIZED = TokenizedText(
    "a b", *np.array([[0, 2], [1, 3]]), *map(np.array, ([0, 1, 2], [7, 8], [0, 1], [0, 0])), False
)


@pytest.mark.parametrize(
    "changes",
    [{}, {"targets": [0.5]}, {"token_ids": [7, 9]}, {"bounds": [0, 2]}, {"chunk_ids": [0, 1]}, {"seed": 1}],
)
def test_stage_is_read_from_the_disk_only_if_no_input_changed(tmp_path, changes):
    """Words, chunks and initial weights were missing from the digest."""

    def run(value, seed=0, targets=(1.0,), **fields):
        text = replace(TOKENIZED, **{name: np.array(field) for name, field in fields.items()})
        y = np.array(targets, np.float32)
        arrays = (y, np.array([True]), np.array([0], np.int8), y, np.full((1, 2), np.nan, np.float32))
        texts = TrainingSet(PackedTexts.pack([text]), *arrays)
        cache = StageCache(tmp_path, lambda line: None)
        return cache.get_or_run("soft", [random_encoder(seed=seed), texts], lambda path: {"value": value})[
            "value"
        ]

    assert run("before") == "before"
    assert run("after", **changes) == ("after" if changes else "before")
