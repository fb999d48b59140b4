"""Two heads that nobody changes, here and on a server, and the command as it is typed."""

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
    """What the command prints. Nothing goes to stderr where it ends well, and nothing to stdout else."""

    def run(*arguments: object, code: int = 0) -> str:
        assert main([str(each) for each in arguments]) == code
        out, err = capsys.readouterr()
        assert not (out if code == 2 else err), out + err
        return err if code == 2 else out

    return run
