"""What the encoder is not asked about. The rest of prepare.py is tested with training, in test_train.py."""

from __future__ import annotations

import pytest

from model_export.train.lexicon import ratings
from model_export.train.prepare import denies_blame


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("The film never gets boring.", True),
        ("It ISN'T dirty.", True),
        ("We will not come back.", False),
        ("No help at all.", False),  # "no" is rated as blame, but denies
        ("The room was dirty.", False),
    ],
)
def test_denied_blame_is_a_word_of_blame_and_one_that_denies(text, denied):
    assert denies_blame(text, ratings()) is denied
