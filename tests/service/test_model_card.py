"""The sentences of the model card: the pretrained model answers them as the card says."""

import re

from paths import ROOT

from hardmax import Local

CARD = (
    (ROOT / "docs/reference/model.md")
    .read_text()
    .partition("## Single sentences")[2]
    .partition("## Limitations")[0]
)
ROW = re.compile(r"\| (.+?) \| (\w+) (\.\d\d)(, abstains)? \| (\S+) ([+-]\d\.\d\d) \| (.*?) ?\|")


def test_sentences_of_the_model_card_are_answered_as_listed(pretrained: Local) -> None:
    lines = [line for line in CARD.splitlines() if line.startswith("| ")][1:]
    rows = [row.groups() for line in lines if (row := ROW.fullmatch(line))]
    assert len(rows) == len(lines) == 20
    answers = pretrained.classify([row[0] for row in rows], model="sentiment", flip=True)
    for (text, label, score, abstains, word, contribution, without), answer in zip(
        rows, answers, strict=True
    ):
        leader = max(answer.leaders, key=lambda leader: abs(leader.contribution))
        verdict = (answer.label, f"{answer.score:.2f}"[1:], answer.abstain_reason is not None)
        assert (text, *verdict) == (text, label, score, bool(abstains))
        assert (text, leader.word, f"{leader.contribution:+.2f}") == (text, word, contribution)
        flip = answer.flip
        removed = f"{', '.join(word.word for word in flip.without)}: {flip.label}" if flip else ""
        assert (text, removed) == (text, without)


def test_long_review_of_the_model_card_is_answered_as_told(pretrained: Local) -> None:
    (review,) = re.findall(r'"(We have used this router.+?)" is positive \.44', " ".join(CARD.split()))
    answer = pretrained.classify(review, model="sentiment")
    assert (answer.label, round(answer.score, 2)) == ("positive", 0.44)
    leaders = [(leader.word, round(leader.contribution, 2)) for leader in answer.leaders]
    assert leaders[:3] == [("excellent", 1.27), ("support", -0.35), ("drops", -0.18)]


def test_implicit_sentiment_is_classified_as_listed(pretrained: Local) -> None:
    """The page lists all sentences of the measurement, with their answers and the right counts."""
    page = (ROOT / "docs/concepts/implicit-sentiment.md").read_text()
    cells = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    measured = (ROOT / "model_export/measure/implicit_sentiment.tsv").read_text().splitlines()[1:]
    assert sorted(row[:2] for row in cells) == sorted(line.split("\t")[:2] for line in measured)
    answers = pretrained.classify([text for text, *_ in cells], model="sentiment")
    correct = {"positive": 0, "negative": 0}
    for (text, label, logit, is_correct, listed), answer in zip(cells, answers, strict=True):
        matches = (answer.logit > 0) == (label == "positive")
        correct[label] += matches
        assert (text, is_correct) == (text, "yes" if matches else "**no**")
        assert (text, logit) == (text, f"{answer.logit:+.2f}")
        assert (text, listed) == (text, f"{answer.label} {answer.score:.2f}".replace(" 0.", " ."))
    counts = f"{correct['positive']} of 50 positive and {correct['negative']} of 50 negative"
    assert counts in " ".join(page.split())
