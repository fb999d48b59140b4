"""The small pretrained models, for tests that do not depend on the size or the weights of the encoder."""

from pathlib import Path

from service.settings import PRETRAINED_FOLDER

MODEL = "sentiment-small"


def link_small_models(folder: Path) -> Path:
    """Link the small pretrained models into a folder; their text classifier is its default model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("dynamics", "encoder-small", MODEL):
        (folder / name).symlink_to(PRETRAINED_FOLDER / name)
    return folder
