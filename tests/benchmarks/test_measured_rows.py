"""Custom models are measured on texts that no model was trained on."""

from benchmarks.rows import CORPORA, unseen_rows
from model_export.data.corpora import SPLITS, Row
from model_export.recipe import Recipe, select_texts

SOURCES = {name for source in Recipe().sources.values() for name in source.sets}


def test_no_test_text_is_trained_on_and_no_row_was_seen_by_the_encoder() -> None:
    sets = {
        name: [
            Row(f"{name} {split} {i} {'ab' * (i % 2)}", i % 2, split) for split in SPLITS for i in range(9)
        ]
        for name in SOURCES
    }
    duplicate = Row("two corpora have it", 1.0, "test")
    sets["mpqa"] += [duplicate, Row(duplicate.text, 1.0)]
    sets["sst"].append(duplicate)
    sets["electronics"].append(Row("word " * 41, 0.0))  # longer than what the encoder was trained on
    not_test = {row.text for rows in sets.values() for row in rows if row.split == "train"}
    seen = {row.text for rows in select_texts(sets, Recipe()).values() for row in rows}
    unseen = unseen_rows(sets)
    assert unseen.keys() == CORPORA.keys()
    for rows in unseen.values():
        test = {row.text for row in rows if row.split == "test"}
        train = {row.text for row in rows if row.split == "train"}
        assert len(test) == 9
        assert not test & (not_test | train)
        assert len(train) >= 9
        assert not train & seen
    assert "word " * 41 in {row.text for row in unseen["electronics"]}
