"""Write in the documents what their commands print now: `python tests/system/record_documents.py`.

Run it after the pretrained models have changed, and read the diff. Numbers and quoted words are replaced in
place; what has another shape is replaced as a whole and named, because `...` has to be put in by hand.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # as pytest's configuration has it
sys.path.insert(0, str(Path(__file__).parent))

from paths import ROOT
from test_readme import WALKED, Reader
from walkthrough import describe_difference

NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
ANYTHING = {"...": ".*?", '"..."': '".*?"'}
VALUE = re.compile(rf'({NUMBER}|"\.\.\."|\.\.\.|"[^".]*")')


class Recorder(Reader):
    """Somebody who notes what is printed instead of comparing it."""

    def __init__(self, folder: Path, search: str) -> None:
        super().__init__(folder, search)
        self.changes: list[tuple[str, str]] = []

    def _compare(self, shown: str, printed: str) -> None:
        if shown and describe_difference(shown, printed):
            self.changes.append((shown, updated(shown, printed)))


def updated(shown: str, printed: str) -> str:
    """Return what is shown with the values that are printed, or all that is printed."""
    parts = VALUE.split(shown.strip())
    patterns = (re.escape(part) if i % 2 == 0 else pattern_of(part) for i, part in enumerate(parts))
    found = re.fullmatch("".join(patterns), printed.strip(), re.DOTALL)
    if not found:
        return printed.rstrip("\n")
    values = iter(found.groups())
    return "".join(part if i % 2 == 0 or part in ANYTHING else next(values) for i, part in enumerate(parts))


def pattern_of(value: str) -> str:
    """Return a pattern of values of the same kind."""
    if value in ANYTHING:
        return ANYTHING[value]
    return '("[^"]*")' if value.startswith('"') else f"({NUMBER})"


def record(document: str) -> None:
    """Run a document, and write it again with what was printed, up to a command that fails."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in ROOT.iterdir():
            (Path(folder) / entry.name).symlink_to(entry)
        recorder = Recorder(Path(folder), f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        try:
            recorder.type("hardmax serve")
            recorder.walk_through((ROOT / document).read_text(), everything=False)
        finally:
            recorder.leave()
            replace(document, recorder.changes)


def replace(document: str, changes: list[tuple[str, str]]) -> None:
    """Put what is printed now in the place of what is shown."""
    text = (ROOT / document).read_text()
    for shown, now in changes:
        if "..." in shown and "..." not in now:
            first = shown.strip().splitlines()[0][:60]
            sys.stdout.write(f"{document}: look at what replaces {first!r}\n")
        text = text.replace(shown.rstrip("\n"), now, 1)
    (ROOT / document).write_text(text)
    sys.stdout.write(f"{document}: {len(changes)} answers changed\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or WALKED:
        record(name)
