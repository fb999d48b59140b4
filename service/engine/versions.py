"""Versions of a model: the folders NAME@1, NAME@2, .. of MODELS_DIR. The newest is served under NAME.

Going back adds the version before as the newest, as `kubectl rollout undo` does: nothing is lost, going back
twice is where one was, and moving a model stays copying a folder.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from service.engine.bundle import find_bundles, read_bundle, versions_of
from service.errors import NotFound


def roll_back(models_dir: Path, name: str) -> tuple[str, str]:
    """Serve the version again that was served before: (its name, the name that it has now)."""
    versions = versions_of(name, find_bundles([models_dir]))
    if len(versions) < 2:
        have = ", ".join(versions.values()) or "none"
        raise NotFound(f"{name} has no version to go back to in {models_dir}; there is {have}", param="model")
    *_, before, last = sorted(versions)
    again, new = versions[before], f"{name}@{last + 1}"
    card = dict(read_bundle(models_dir / again).card) | {"name": new, "again": again}
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=models_dir) as place:
        folder = Path(place) / new
        shutil.copytree(models_dir / again, folder)
        (folder / "card.json").write_text(
            json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        read_bundle(folder)
        folder.rename(models_dir / new)
    return again, new
