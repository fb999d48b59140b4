"""The README tells the truth: its commands work, its answers are what comes back, its links lead on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import serving
from tests.walkthrough import LANGUAGES, Block, blocks, differs, local_links, steps

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):8000")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as server:
        yield server.port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README's commands run: they see the tree, and what they write stays out of it."""
    folder = tmp_path_factory.mktemp("readme")
    for entry in ROOT.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


def run(command: str, port: int, folder: Path) -> str:
    """What the command prints, in a shell whose server listens on another port than the README's."""
    search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ADDRESS.sub(f"127.0.0.1:{port}", command)],
        cwd=folder,
        env={**kept, "PATH": search, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_python(program: str, port: int, folder: Path) -> str:
    (folder / "program.py").write_text(ADDRESS.sub(f"127.0.0.1:{port}", program))
    return run(f"{sys.executable} program.py", port, folder)


def check_named(command: str) -> None:
    """A command that is not run names things that exist."""
    words = command.split()
    if words[0] == "make":
        named = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        assert set(named) <= TARGETS, f"no such make target: {command}"
    elif words[:2] == ["docker", "compose"]:
        assert (ROOT / "compose.yaml").is_file()
    else:
        assert shutil.which(words[0]) or words[0] in ("docker", "kubectl", "git"), (
            f"no such command: {command}"
        )


def test_readme_runs_every_command_and_program_as_shown(port: int, folder: Path) -> None:
    printed = ""
    for block in blocks(README):
        if block.info == "console":
            for step in steps(block):
                output = run(step.command, port, folder)
                assert not step.answer or differs(step.answer, output) is None, differs(step.answer, output)
        elif block.info == "python":
            printed = run_python(block.body, port, folder)
        elif block.info == "text" and printed:
            assert differs(block.body, printed) is None, differs(block.body, printed)
            printed = ""


def test_readme_names_only_what_exists() -> None:
    for block in blocks(README):
        assert block.info in LANGUAGES, f"```{block.info} would not be checked: use console, python or text"
        if block.info == "console no-run":
            for step in steps(block):
                check_named(step.command)
    for link in local_links(README):
        assert (ROOT / link).exists(), f"README links to {link}, which is not here"


def test_check_named_finds_targets_and_commands_that_do_not_exist() -> None:
    check_named("make serve PYTHON=python3")
    for lie in ("make dinner", "hardmacks serve"):
        with pytest.raises(AssertionError, match="no such"):
            check_named(lie)


def test_walkthrough_takes_commands_answers_and_continuations_apart() -> None:
    document = "text\n```console\n$ one \\\n  two\nanswer\n$ three\n```\n```python\nprint(1)\n```\n"
    first, second = blocks(document)
    assert [(step.command, step.answer) for step in steps(first)] == [
        ("one \\\n  two", "answer"),
        ("three", ""),
    ]
    assert second == Block("python", "print(1)\n")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("score 0.97", "score 0.9701"),
        ('{"id": "...", "n": 3}', '{"id": "abc", "n": 3}'),
        ("first\n...\nlast", "first\n2\n3\nlast"),
        ("so many ... words", "so many 12 words"),
    ],
)
def test_walkthrough_forgives_last_digits_and_ellipses(shown: str, printed: str) -> None:
    assert differs(shown, printed) is None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("score 0.97", "score 0.93"),
        ("label positive", "label negative"),
        ("3 leaders", "4 leaders"),
        ("one line", "one line\nand another"),
        ("first\n...\nlast", "first\nmiddle"),
    ],
)
def test_walkthrough_finds_a_document_that_lies(shown: str, printed: str) -> None:
    assert "but it prints" in str(differs(shown, printed))


def test_walkthrough_finds_links_outside_code() -> None:
    document = '[a](docs/a.md#part) ![b](docs/b.svg "t") [c](https://x.org) [d](#d) <img src="e.png">'
    document += "\n```\n[f](g)\n```"
    assert local_links(document) == ["docs/a.md", "docs/b.svg", "e.png"]
