"""What users rely on is as it was recorded. After an intended change: `python -m tests.contract.record`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from paths import ROOT

from tests.contract import commanding, exact, exchanging, python_api
from tests.contract.served import MODEL, run_command

pytestmark = [pytest.mark.early, pytest.mark.timeout(600)]
COMMANDS = exchanging.load(commanding.FILE)
OpenClient = Callable[..., TestClient]


@pytest.fixture(scope="session")
def names(open_client: OpenClient) -> dict[str, str]:
    """What `${name}` stands for in requests."""
    version = open_client().get(f"/v2/models/{MODEL}").json()["versions"][-1]
    return {"model": MODEL, "version": version}


@pytest.mark.parametrize("path", sorted(exchanging.FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_requests_are_answered_as_recorded(
    path: Path, open_client: OpenClient, names: dict[str, str]
) -> None:
    document = exchanging.load(path)
    client = open_client(**document.get("settings", {}))
    different = []
    for exchange in document["exchanges"]:
        found = exchanging.send(client, exchanging.fill(exchange, names))
        if not exchanging.same(exchange["answer"], found):
            different.append(f"{exchange['name']}\n  recorded: {exchange['answer']}\n  answered: {found}")
    assert not different, "\n".join(different)


def test_there_are_two_hundred_requests_with_every_status_that_a_caller_causes() -> None:
    exchanges = [
        each for path in exchanging.FOLDER.glob("*.yaml") for each in exchanging.load(path)["exchanges"]
    ]
    assert len(exchanges) >= 200
    assert {each["answer"]["status"] for each in exchanges} == {200, 400, 401, 403, 404, 405, 413, 415, 422}


@pytest.mark.parametrize("kind", exact.KINDS)
def test_answers_are_exactly_as_recorded(kind: str, open_client: OpenClient) -> None:
    recorded = (exact.FOLDER / f"{kind}.csv").read_text().splitlines()
    assert exact.lines(kind, open_client()) == recorded


def test_commands_print_and_exit_as_recorded(models_dir: Path, tmp_path: Path) -> None:
    different = []
    for index, command in enumerate(COMMANDS["commands"]):
        found = commanding.run(command, tmp_path / str(index), models_dir)
        if not exchanging.same(command["answer"], found):
            different.append(f"{command['name']}\n  recorded: {command['answer']}\n  printed: {found}")
    assert not different, "\n".join(different)


def test_commands_have_the_recorded_flags() -> None:
    assert commanding.flags() == COMMANDS["flags"]


def test_python_names_have_the_recorded_signatures() -> None:
    assert python_api.lines() == python_api.FILE.read_text().split("\n")


def test_openapi_document_is_the_recorded_one() -> None:
    code, document, _ = run_command("hardmax", ["openapi"])
    assert code == 0
    assert document == (ROOT / "docs/openapi.json").read_text()


@pytest.mark.parametrize(
    ("recorded", "found", "alike"),
    [
        ({"logit": 1.0}, {"logit": 1.0 + 1e-9}, True),
        ({"logit": 1.0}, {"logit": 1.001}, False),
        ({"label": "positive"}, {"label": "negative"}, False),
        ({"message": "an empty text"}, {"message": "the text is empty"}, True),
        ({"message": "an empty text"}, {"message": ""}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [1], False),
        (1, True, False),
        (1, 1.0, False),
    ],
)
def test_comparison_tells_different_answers_apart(recorded: Any, found: Any, alike: bool) -> None:
    assert exchanging.same(recorded, found) is alike
