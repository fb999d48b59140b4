"""Writes examples/chords.jsonl: 48 triads as sequences of notes in the plane, labelled by their kind.

Notes are the twelve points of a circle, a step of a semitone each. A chord is the same in any order of its
notes, and with notes doubled: what attention without positions sees. Run: python examples/chords.py
"""

import json
import math
from pathlib import Path

KINDS = {"major": (0, 4, 7), "minor": (0, 3, 7), "diminished": (0, 3, 6), "augmented": (0, 4, 8)}


def note(step: int) -> list[float]:
    angle = math.tau * (step % 12) / 12
    return [round(math.cos(angle), 6), round(math.sin(angle), 6)]


def chords() -> list[dict[str, object]]:
    """Every kind on every root; the k-th root's chord begins with its (k mod 3)-th note, and doubles it."""
    rows: list[dict[str, object]] = []
    for kind, steps in KINDS.items():
        for root in range(12):
            order = steps[root % 3 :] + steps[: root % 3]
            rows.append({"sequence": [note(root + step) for step in (*order, order[0])], "label": kind})
    return rows


if __name__ == "__main__":
    lines = [json.dumps(row) + "\n" for row in chords()]
    Path(__file__).with_name("chords.jsonl").write_text("".join(lines))
