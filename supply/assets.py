"""Files of others that the page brings along: whose they are and under which licence.

The fonts' folder says so itself, in the first lines of OFL.txt; nothing else of the page is from elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WEB = Path("service/web")
NOTICE = WEB / "fonts" / "OFL.txt"
LICENCE = "OFL-1.1"
NAMED = re.compile(r"^(?P<files>[\w.-]+(?:, [\w.-]+)*): (?P<owner>Copyright .+)$", re.MULTILINE)
NOT_WRITTEN = {".woff2", ".woff", ".ttf", ".otf", ".png", ".jpg", ".gif", ".webp", ".wasm"}


@dataclass(frozen=True)
class Asset:
    """One file, by its path in the tree."""

    path: str
    owner: str
    sha256: str


def read_assets(root: Path) -> list[Asset]:
    """The files that the notice names."""
    found = {}
    for line in NAMED.finditer((root / NOTICE).read_text()):
        for file in line["files"].split(", "):
            path = NOTICE.parent / file
            digest = hashlib.sha256((root / path).read_bytes()).hexdigest()
            found[file] = Asset(path.as_posix(), line["owner"], digest)
    return [found[file] for file in sorted(found)]


def unnamed(root: Path) -> Iterator[str]:
    """Files of the page that nobody wrote as text and that no notice names."""
    named = {asset.path for asset in read_assets(root)}
    for path in sorted((root / WEB).rglob("*")):
        where = path.relative_to(root).as_posix()
        if path.suffix in NOT_WRITTEN and where not in named:
            yield f"{where} is named in no notice: whose is it?"
