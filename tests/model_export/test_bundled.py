"""How the bundled models are made: what is kept when a run stops."""

import pytest

from model_export.bundled import Kept
from model_export.writing import replacing


class Stopped(Exception):
    pass


class Unwritable:
    """Saving stops at it, as at a full disk."""

    def __reduce__(self):
        raise Stopped


def test_file_is_replaced_when_it_is_whole(tmp_path):
    file = tmp_path / "new" / "file.npy"

    def write(content, *, stop=False):
        with replacing(file) as out:
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
        Kept(tmp_path, told.append).step("soft", [7], lambda at: make(at, Unwritable()))
    assert Kept(tmp_path, told.append).step("soft", [7], make) == {"value": 1}
    assert Kept(tmp_path, told.append).step("soft", [7], make) == {"value": 1}
    (file,) = tmp_path.glob("*.pt")
    assert told == [False, True, f"soft: taken from {file.name}"]
    assert not list(tmp_path.glob("*.checkpoint"))
