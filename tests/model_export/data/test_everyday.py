"""The everyday sentences: labels, splits by blocks, and marks that occur in their texts."""

from collections import Counter

from model_export.data.everyday import BLOCK_LINES, FOLDER, MARKS, read_everyday

SENTENCES = read_everyday()


def test_every_sentence_is_there_once_with_one_of_three_labels():
    assert len(SENTENCES) == len({row.text for row in SENTENCES}) == 34_504
    assert Counter(row.target for row in SENTENCES) == {0.0: 10_828, 0.5: 13_056, 1.0: 10_620}
    assert Counter(row.split for row in SENTENCES) == {"train": 31_163, "validation": 1_637, "test": 1_704}


def test_neighbouring_lines_of_a_block_share_a_split():
    split_of = {row.text: row.split for row in SENTENCES}
    for path in sorted(FOLDER.glob("*.tsv")):
        if path.name in MARKS:
            continue
        texts = [line.split("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()]
        for start in range(0, len(texts), BLOCK_LINES):
            assert len({split_of[text] for text in texts[start : start + BLOCK_LINES]}) == 1


def test_marked_words_occur_in_their_text():
    marked = [row for row in SENTENCES if row.marks]
    assert len(marked) == 5_295
    for row in marked:
        text = row.text.lower()
        assert all(word.lower() in text for words in row.marks.values() for word in words)
