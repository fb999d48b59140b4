"""Models of one's own are measured on texts that nobody has learnt from."""

from benchmarks.rows import CORPORA, unread
from model_export.data.corpora import SPLITS, Row
from model_export.recipe import Recipe, select_texts

SOURCES = {name for source in Recipe().sources.values() for name in source.sets}


def test_no_measured_text_is_learnt_from_and_no_row_is_one_that_the_reader_has_read() -> None:
    sets = {
        name: [
            Row(f"{name} {split} {i} {'ab' * (i % 2)}", i % 2, split) for split in SPLITS for i in range(9)
        ]
        for name in SOURCES
    }
    twice = Row("two corpora have it", 1.0, "test")
    sets["mpqa"] += [twice, Row(twice.text, 1.0)]
    sets["sst"].append(twice)
    sets["electronics"].append(Row("word " * 41, 0.0))  # longer than what the reader was asked
    trained = {row.text for rows in sets.values() for row in rows if row.split == "train"}
    read = {row.text for rows in select_texts(sets, Recipe()).values() for row in rows}
    found = unread(sets)
    assert found.keys() == CORPORA.keys()
    for rows in found.values():
        measured = {row.text for row in rows if row.split == "test"}
        learnt_from = {row.text for row in rows if row.split == "train"}
        assert len(measured) == 9
        assert not measured & (trained | learnt_from)
        assert len(learnt_from) >= 9
        assert not learnt_from & read
    assert "word " * 41 in {row.text for row in found["electronics"]}
