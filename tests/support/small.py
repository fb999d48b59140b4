"""The small pretrained models, for tests whose subject is not the size or the weights of the encoder."""

from pathlib import Path

from service.settings import PRETRAINED_FOLDER

ENCODER, HEAD = "encoder-small", "sentiment-small"


def link_small(folder: Path) -> Path:
    """Link the small pretrained models into a folder to be served alone; their head is then the default."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("dynamics", ENCODER, HEAD):
        (folder / name).symlink_to(PRETRAINED_FOLDER / name)
    return folder
