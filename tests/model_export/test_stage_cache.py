"""What is kept of a run, and when it is taken from the disk again."""

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
    """Saving stops at it, as at a full disk."""

    def __reduce__(self):
        raise Stopped


def test_file_is_replaced_when_it_is_whole(tmp_path):
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


def test_step_that_was_stopped_while_it_was_written_goes_on_from_its_checkpoint(tmp_path):
    """Half a file was there, and taken for the step; the checkpoint was gone."""
    told = []

    def make(checkpoint, value=1):
        told.append(checkpoint.exists())
        checkpoint.write_text("so far")
        return {"value": value}

    with pytest.raises(Stopped):
        StageCache(tmp_path, told.append).get_or_run("soft", [7], lambda at: make(at, Unwritable()))
    assert StageCache(tmp_path, told.append).get_or_run("soft", [7], make) == {"value": 1}
    assert StageCache(tmp_path, told.append).get_or_run("soft", [7], make) == {"value": 1}
    (file,) = tmp_path.glob("*.pt")
    assert told == [False, True, f"soft: taken from {file.name}"]
    assert not list(tmp_path.glob("*.checkpoint"))


READING = TokenizedText(
    "a b", *np.array([[0, 2], [1, 3]]), *map(np.array, ([0, 1, 2], [7, 8], [0, 1], [0, 0])), False
)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"targets": [0.5]},
        {"token_ids": [7, 9]},
        {"bounds": [0, 2]},
        {"chunk_ids": [0, 1]},
        {"seed": 1},
    ],
)
def test_step_is_taken_from_the_disk_only_if_nothing_that_it_is_made_of_changed(tmp_path, changed):
    """Words, passages and the weights to begin with were no part of the digest."""

    def step(value, seed=0, targets=(1.0,), **reading):
        read = replace(READING, **{name: np.array(each) for name, each in reading.items()})
        made_of = [
            random_encoder(seed=seed),
            TrainingSet(PackedTexts.pack([read]), np.array(targets, np.float32)),
        ]
        kept = StageCache(tmp_path, lambda line: None).get_or_run(
            "soft", made_of, lambda at: {"value": value}
        )
        return kept["value"]

    assert step("before") == "before"
    assert step("after", **changed) == ("after" if changed else "before")
