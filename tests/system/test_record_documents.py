"""Updated outputs in documents after the models have changed."""

import pytest
from record_documents import update_output


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("positive 92.1%  A film.\n    +3.923  superb", "positive 97.0%  A film.\n    -0.012  superb", None),
        ('{"id":"...","m":"a","x":...', '{"id":"7f","m":"b","x":[2]}', '{"id":"...","m":"b","x":...'),
        ("first +1.5\n...\nlast 2.5", "first -0.5\nmore\nand more\nlast 3.5", "first -0.5\n...\nlast 3.5"),
        ("positive\n...", "negative\n3 rows\n", "negative\n3 rows"),
    ],
)  # fmt: skip
def test_output_is_updated_in_place_or_replaced(shown: str, printed: str, expected: str | None) -> None:
    assert update_output(shown, printed) == (printed if expected is None else expected)
