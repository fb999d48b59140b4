"""The wheels work when installed in an empty environment and used from another folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from server import environ, serving

from service import __version__

pytestmark = [pytest.mark.fresh, pytest.mark.timeout(1800)]
TYPED_PROGRAM = """
from hardmax import Answer, AsyncClient, HardmaxError, Local
import service

async def later(texts: list[str]) -> list[str]:
    async with AsyncClient(service.ADDRESS, retries=0) as hardmax:
        one: Answer = await hardmax.classify(texts[0], without=[(0, 2)], flip=True)
        many = await hardmax.classify((text for text in texts), errors="keep", model=["a", "b"])
        words = [read.word for leader in one.leaders for read in leader.read]
        return [one.label, *words, *(answer.verdict for answer in many if not answer.error)]

def here(text: str) -> int | None:
    try:
        return len(Local().classify(text).leaders)
    except HardmaxError as refused:
        return refused.status
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    run(folder, sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", ROOT / "hardmax", ROOT)
    return folder


def run(folder: Path, *command: str | Path) -> str:
    env = environ() | {"PYTHONPATH": ""}
    result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def empty_environment(folder: Path) -> Path:
    run(folder, sys.executable, "-m", "venv", "empty")
    return folder / "empty/bin"


def install(bin_folder: Path, *packages: str | Path) -> None:
    constraints = ["--constraint", ROOT / "constraints.txt"]
    run(bin_folder, bin_folder / "python", "-m", "pip", "install", "--quiet", *constraints, *packages)


def test_wheel_classifies_from_an_empty_environment(wheels: Path, tmp_path: Path) -> None:
    bin_folder = empty_environment(tmp_path)
    (service,) = wheels.glob("hardmax_service-*.whl")
    install(bin_folder, f"{service}[cpu]")
    assert run(tmp_path, bin_folder / "hardmax", "--version") == f"hardmax {__version__}\n"
    assert run(tmp_path, bin_folder / "hardmax", "classify", "A superb film.").startswith("positive")


def test_notebook_extra_is_enough_in_an_empty_environment(tmp_path: Path) -> None:
    """All cells of the example run after `pip install '.[notebook]'`."""
    bin_folder = empty_environment(tmp_path)
    install(bin_folder, f"{ROOT}[notebook]")
    cells = json.loads((ROOT / "examples/answers.ipynb").read_text())["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "notebook.py").write_text(program + "\nprint(hardmax.classify('A superb film.').verdict)\n")
    assert run(ROOT / "examples", bin_folder / "python", tmp_path / "notebook.py").startswith("positive")


def test_client_alone_works_next_to_another_package_service(wheels: Path, tmp_path: Path) -> None:
    """The program of the README passes mypy and runs where `service` is another package."""
    bin_folder = empty_environment(tmp_path)
    (client,) = wheels.glob("hardmax-*.whl")
    install(bin_folder, client)
    installed = set(run(tmp_path, bin_folder / "python", "-m", "pip", "list", "--format", "freeze").split())
    names = {line.partition("==")[0] for line in installed} - {"pip", "setuptools"}
    of_httpx = {"anyio", "certifi", "h11", "httpcore", "idna", "sniffio", "typing_extensions"}
    of_pydantic = {"annotated-types", "pydantic_core", "typing-inspection"}
    needed = {"hardmax", "httpx", "numpy", "pydantic"}
    assert needed <= names <= needed | of_httpx | of_pydantic

    install(bin_folder, "mypy")
    (tmp_path / "service").mkdir()
    (tmp_path / "service/__init__.py").write_text('ADDRESS = "http://127.0.0.1:1"\n')
    (program,) = re.findall(r"```python\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with serving() as server:
        (tmp_path / "readme.py").write_text(program.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}"))
        (tmp_path / "caller.py").write_text(TYPED_PROGRAM)
        report = run(tmp_path, bin_folder / "mypy", "--strict", "readme.py", "caller.py")
        assert report.startswith("Success"), report
        assert run(tmp_path, bin_folder / "python", "readme.py").startswith("positive ")
    run(tmp_path, bin_folder / "python", "-c", "from hardmax import *; import hardmax; help(hardmax)")
    code = "from hardmax import Local"
    result = subprocess.run([bin_folder / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    message = (
        "hardmax.Local needs the package hardmax-service, which is not installed or is hidden by the package"
    )
    assert f"{message} ['{tmp_path}/service']" in result.stderr
