"""What replaces an answer in a document when the models have changed."""

import pytest
from record_documents import updated


@pytest.mark.parametrize(
    ("shown", "printed", "now"),
    [
        ("positive 92.1%  A film.\n    +3.923  superb", "positive 97.0%  A film.\n    -0.012  superb", None),
        ('{"id":"...","m":"a","x":...', '{"id":"7f","m":"b","x":[2]}', '{"id":"...","m":"b","x":...'),
        ("first +1.5\n...\nlast 2.5", "first -0.5\nmore\nand more\nlast 3.5", "first -0.5\n...\nlast 3.5"),
        ("positive\n...", "negative\n3 rows\n", "negative\n3 rows"),
    ],
)  # fmt: skip
def test_answer_is_updated_in_its_shape_or_replaced_as_a_whole(
    shown: str, printed: str, now: str | None
) -> None:
    assert updated(shown, printed) == (printed if now is None else now)
