"""What is wrong with a body, in words that name the field."""

import pytest

from service.errors import InvalidInput
from service.schemas.reading import validate
from service.schemas.requests import ClassifyRequest, DynamicsParameters


@pytest.mark.parametrize(
    ("model", "document", "message"),
    [
        (
            DynamicsParameters,
            {"trajectory": True},
            "trajectory: an unknown field; did you mean trajectory_every?",
        ),
        (ClassifyRequest, {"input": "a", "modell": "b"}, "modell: an unknown field; did you mean model?"),
        (ClassifyRequest, {"input": "a", "zzz": 1}, "zzz: an unknown field"),
    ],
)
def test_unknown_field_is_named_with_the_nearest(
    model: type[DynamicsParameters | ClassifyRequest], document: object, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        validate(model, document)
    assert refused.value.message == message
