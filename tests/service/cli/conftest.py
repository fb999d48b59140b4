"""Fixtures of the command line: two heads, a server of these, and a function that runs the command."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bundles import write_head
from server import Server, serving

from service.cli.main import main


@pytest.fixture(scope="package")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_head(folder, name="one")
    write_head(folder, name="other", seed=1)
    return folder


@pytest.fixture(scope="package")
def server(heads: Path) -> Iterator[Server]:
    with serving(heads, default_model="one", max_client_batch_size=1) as server:
        yield server


@pytest.fixture
def hardmax(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs the command and returns its output: stderr if `code` is 2, stdout otherwise."""

    def run(*arguments: object, code: int = 0) -> str:
        assert main(list(map(str, arguments))) == code
        out, err = capsys.readouterr()
        assert not (out if code == 2 else err), out + err
        return err if code == 2 else out

    return run
