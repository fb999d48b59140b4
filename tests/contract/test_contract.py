"""The public contract is as recorded. After an intended change: `python -m tests.contract.record`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from paths import ROOT

from tests.contract import cli_commands, exact_answers, http_exchanges, python_api
from tests.contract.application import run_command

pytestmark = [pytest.mark.early, pytest.mark.timeout(600)]
COMMANDS = http_exchanges.load_yaml(cli_commands.FILE)
OpenClient = Callable[..., TestClient]


@pytest.fixture(scope="session")
def names(open_client: OpenClient) -> dict[str, str]:
    return http_exchanges.placeholder_names(open_client())


@pytest.mark.parametrize("path", sorted(http_exchanges.FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_responses_are_as_recorded(path: Path, open_client: OpenClient, names: dict[str, str]) -> None:
    document = http_exchanges.load_yaml(path)
    client = open_client(**document.get("settings", {}))
    different = []
    for exchange in document["exchanges"]:
        actual = http_exchanges.send(client, http_exchanges.fill(exchange, names))
        if not http_exchanges.answers_match(exchange["answer"], actual):
            different.append(f"{exchange['name']}\n  recorded: {exchange['answer']}\n  answered: {actual}")
    assert not different, "\n".join(different)


def test_exchanges_have_every_status_that_a_caller_causes() -> None:
    documents = [http_exchanges.load_yaml(path) for path in http_exchanges.FOLDER.glob("*.yaml")]
    statuses = [exchange["answer"]["status"] for document in documents for exchange in document["exchanges"]]
    assert len(statuses) >= 200
    assert set(statuses) == {200, 400, 401, 403, 404, 405, 413, 415, 422}


@pytest.mark.parametrize("kind", exact_answers.KINDS)
def test_answers_are_exactly_as_recorded(kind: str, open_client: OpenClient) -> None:
    recorded = (exact_answers.FOLDER / f"{kind}.csv").read_text().splitlines()
    assert exact_answers.csv_lines(kind, open_client()) == recorded


def test_commands_print_and_exit_as_recorded(models_dir: Path, tmp_path: Path) -> None:
    different = []
    for index, command in enumerate(COMMANDS["commands"]):
        actual = cli_commands.run(command, tmp_path / str(index), models_dir)
        if not http_exchanges.answers_match(command["answer"], actual):
            different.append(f"{command['name']}\n  recorded: {command['answer']}\n  printed: {actual}")
    assert not different, "\n".join(different)


def test_commands_have_the_recorded_flags() -> None:
    assert cli_commands.flags() == COMMANDS["flags"]


def test_python_names_have_the_recorded_signatures() -> None:
    assert python_api.describe_lines() == python_api.FILE.read_text().split("\n")


def test_openapi_document_is_the_recorded_one() -> None:
    code, document, _ = run_command("hardmax", ["openapi"])
    assert code == 0
    assert document == (ROOT / "docs/openapi.json").read_text()


@pytest.mark.parametrize(
    ("recorded", "actual", "equal"),
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
def test_comparison_finds_differences(recorded: Any, actual: Any, equal: bool) -> None:
    assert http_exchanges.answers_match(recorded, actual) is equal
