"""The directive `blind-lists`: the number of words on each list of the pretrained encoder."""

import json
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

VOCABULARY = Path(__file__).parents[2] / "service/pretrained/encoder/pieces.json"
LISTS = {
    "groups": "groups of people, always folded",
    "names": "names, always folded",
    "sometimes": "words that are names with a capital letter inside a sentence only",
}


class BlindLists(SphinxDirective):
    """Render one row per list: what it holds, and how many words."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(VOCABULARY))
        vocabulary = json.loads(VOCABULARY.read_text())
        rows = [f"| {meaning} | {len(vocabulary[name]):,} |" for name, meaning in LISTS.items()]
        table = ["| list | words |", "|---|---|", *rows]
        container = nodes.container()
        self.state.nested_parse(StringList(table, source=str(VOCABULARY)), self.content_offset, container)
        return [container]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("blind-lists", BlindLists)
    return {"parallel_read_safe": True}
