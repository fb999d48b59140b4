"""Update the outputs in the documents: `python tests/system/record_documents.py`.

Run it after the pretrained models have changed, and read the diff. Numbers and quoted words are replaced in
place. An output with another structure is replaced completely and reported, because its `...` have to be
inserted by hand.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # as pytest's configuration has it
sys.path.insert(0, str(Path(__file__).parent))

from paths import ROOT
from test_readme import EXECUTED_DOCUMENTS, DocumentRunner
from walkthrough import describe_difference

NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
ANYTHING = {"...": ".*?", '"..."': '".*?"'}
VALUE = re.compile(rf'({NUMBER}|"\.\.\."|\.\.\.|"[^".]*")')


class Recorder(DocumentRunner):
    """Records the changed outputs instead of failing."""

    def __init__(self, folder: Path, search: str) -> None:
        super().__init__(folder, search)
        self.changes: list[tuple[str, str]] = []

    def _compare(self, shown: str, printed: str) -> None:
        if shown and describe_difference(shown, printed):
            self.changes.append((shown, update_output(shown, printed)))


def update_output(shown: str, printed: str) -> str:
    """Return the shown output with the printed values; all that is printed if the structure differs."""
    parts = VALUE.split(shown.strip())
    patterns = (re.escape(part) if i % 2 == 0 else value_pattern(part) for i, part in enumerate(parts))
    match = re.fullmatch("".join(patterns), printed.strip(), re.DOTALL)
    if not match:
        return printed.rstrip("\n")
    values = iter(match.groups())
    return "".join(part if i % 2 == 0 or part in ANYTHING else next(values) for i, part in enumerate(parts))


def value_pattern(value: str) -> str:
    """Return a pattern that matches values of the same kind."""
    if value in ANYTHING:
        return ANYTHING[value]
    return '("[^"]*")' if value.startswith('"') else f"({NUMBER})"


def record(document: str) -> None:
    """Run a document and update its outputs, up to the first command that fails."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in ROOT.iterdir():
            (Path(folder) / entry.name).symlink_to(entry)
        recorder = Recorder(Path(folder), f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        try:
            recorder.run_command("hardmax serve")
            recorder.run_document((ROOT / document).read_text(), include_no_run=False)
        finally:
            recorder.stop()
            replace(document, recorder.changes)


def replace(document: str, changes: list[tuple[str, str]]) -> None:
    """Replace the shown outputs by the printed ones."""
    text = (ROOT / document).read_text()
    for shown, printed in changes:
        if "..." in shown and "..." not in printed:
            first_line = shown.strip().splitlines()[0][:60]
            sys.stdout.write(f"{document}: look at what replaces {first_line!r}\n")
        text = text.replace(shown.rstrip("\n"), printed, 1)
    (ROOT / document).write_text(text)
    sys.stdout.write(f"{document}: {len(changes)} answers changed\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or EXECUTED_DOCUMENTS:
        record(name)
