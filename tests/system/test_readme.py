"""The documents are true: commands work, outputs are as shown, links and names exist, claims are tested."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from paths import ROOT
from server import environ
from walkthrough import LANGUAGES, describe_difference, parse_blocks, parse_steps

README = (ROOT / "README.md").read_text()
# Documents whose commands and programs are run, in order, each with its own server.
EXECUTED_DOCUMENTS = [
    "README.md",
    "docs/start/tutorial.md",
    "docs/guides/abstain.md",
    "docs/guides/counterfactuals.md",
    "docs/guides/clouds.md",
    "docs/guides/migrate.md",
]
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):8000")
FILE = re.compile(r"`([\w./-]+\.(?:csv|ipynb|js|json|jsonl|lock|md|npy|py|sh|toml|tsv|txt|yaml))`")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
DIRS = "benchmarks deploy docker docs evaluation examples hardmax model_export results service tests".split()
# They would replace the checkout under test; tests/system/test_wheel.py installs both distributions.
SEPARATE_INSTALLATIONS = ("git clone", "pip install")
GENERATED_FILES = {"answers.csv", "report.html", "card.json", "sbom.json"}
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


class DocumentRunner:
    """Runs the commands of a document as in a second terminal, while a server runs in the first."""

    def __init__(self, folder: Path, search: str, **environment: str) -> None:
        self._folder = folder
        self._environment = environ(port=0) | {"PATH": search, "COLUMNS": "120"} | environment
        self._server: subprocess.Popen[str] | None = None
        self._port = 0

    def run_command(self, command: str) -> str:
        """Run a command and return its output. The port of the document is replaced by that of the server."""
        if re.match(r"(hardmax|make) serve", command):
            return self._serve(command)
        if command.startswith("source "):
            self._environment["PATH"] = f"{self._folder / '.venv/bin'}:{self._environment['PATH']}"
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._with_port(command)],
            cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert result.returncode == 0, f"$ {command}\n{result.stdout}{result.stderr}"
        return result.stdout

    def run_program(self, program: str) -> str:
        (self._folder / "program.py").write_text(self._with_port(program))
        return self.run_command("python program.py")

    def _serve(self, command: str) -> str:
        """Stop the running server, if any, start another, and return its output up to the port."""
        self.stop()
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self._folder, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert self._server.stdout is not None
        output = ""
        for line in self._server.stdout:
            output += line
            if match := re.search(r" on http://\S+:(\d+)", line):
                self._port = int(match[1])
                return output
        raise AssertionError(f"$ {command}\n{output}")

    def stop(self) -> None:
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGTERM)
            self._server.communicate(timeout=30)
            self._server = None

    def _with_port(self, text: str) -> str:
        return ADDRESS.sub(f"127.0.0.1:{self._port}", text).replace("<this repository>", ROOT.as_uri())

    def run_document(self, document: str, *, include_no_run: bool) -> int:
        """Run all blocks in order, `no-run` ones only with `everything`; return the number of commands."""
        printed = ""
        n_commands = 0
        for block in parse_blocks(document):
            if block.info == "console" or (include_no_run and block.info == "console no-run"):
                for step in parse_steps(block):
                    if not step.command.startswith(SEPARATE_INSTALLATIONS):
                        self._compare(step.output, self.run_command(step.command))
                        n_commands += 1
            elif block.info == "python":
                printed = self.run_program(block.body)
                n_commands += 1
            elif block.info == "text" and printed:
                self._compare(block.body, printed)
                printed = ""
        return n_commands

    def _compare(self, shown: str, printed: str) -> None:
        difference = describe_difference(shown, printed) if shown else None
        assert difference is None, difference


def check_unrun_command(command: str) -> None:
    """Assert that the targets, files and programs of a command that is not run exist."""
    words = command.split()
    if words[0] == "make":
        targets = {word for word in words[1:] if "=" not in word and not word.startswith("-")}
        assert targets <= MAKE_TARGETS, f"no such make target: {command}"
    elif words[:2] == ["docker", "compose"]:
        assert (ROOT / "compose.yaml").is_file()
    else:
        assert shutil.which(words[0]) or words[0] in ("docker", "kubectl", "git", "source"), (
            f"no such command: {command}"
        )


@pytest.mark.system
@pytest.mark.early
@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", EXECUTED_DOCUMENTS)
def test_commands_and_programs_of_a_document_print_what_it_shows(document: str, tmp_path: Path) -> None:
    for entry in ROOT.iterdir():  # commands read the tree, and write to another folder
        (tmp_path / entry.name).symlink_to(entry)
    runner = DocumentRunner(tmp_path, f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    try:
        runner.run_command("hardmax serve")  # what `make serve` ends with
        assert runner.run_document((ROOT / document).read_text(), include_no_run=False) >= 2
    finally:
        runner.stop()


@pytest.mark.fresh
@pytest.mark.timeout(3000)
def test_readme_works_from_an_empty_environment(tmp_path: Path) -> None:
    """Run `make serve` and every later command in a clone with nothing installed."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "hardmax")], check=True)
    folders = [part for part in os.environ["PATH"].split(":") if Path(part) != Path(sys.executable).parent]
    runner = DocumentRunner(tmp_path / "hardmax", ":".join(folders), PYTHONPATH="")
    try:
        assert runner.run_document(README, include_no_run=True) >= 5
    finally:
        runner.stop()


def test_readme_names_only_what_exists() -> None:
    for block in parse_blocks(README):
        assert block.info in LANGUAGES, f"```{block.info} would not be checked: use console, python or text"
        if block.info == "console no-run":
            for step in parse_steps(block):
                check_unrun_command(step.command)


def test_readme_installs_distributions_by_their_names() -> None:
    """pip refuses a requirement whose name is not that of the distribution in its folder."""
    named = re.findall(
        r'pip install "([\w-]+)(?:\[(\w+)\])? @ git\+<this repository>(?:#subdirectory=(\w+))?"', README
    )
    assert named
    for name, extra, folder in named:
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        assert name == project["name"]
        assert not extra or extra in project["optional-dependencies"]


def test_documents_are_in_the_table_of_contents() -> None:
    pages = set((ROOT / "docs").rglob("*.md"))
    listed = {
        page.parent / f"{name}.md"
        for page in pages
        for block in re.findall(r"```{toctree}\n:hidden:\n(.*?)```", page.read_text(), re.DOTALL)
        for name in block.split()
    }
    assert pages - listed == {ROOT / "docs/index.md"}
    assert listed - pages == set()


def heading_anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_files_and_links_in_documents_exist() -> None:
    tree = [path.as_posix() for glob in ("*", *(f"{name}/**/*" for name in DIRS)) for path in ROOT.glob(glob)]
    for page in PAGES:
        for name in FILE.findall(page.read_text()):
            exists = name in GENERATED_FILES or any(path.endswith(f"/{name}") for path in tree)
            assert exists, f"{page.name} names {name}, which does not exist"
        for target, _, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#([^)\s]+))?\)", page.read_text()):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}, which does not exist"
            assert not anchor or anchor in heading_anchors(linked), f"{page.name} links to {target}#{anchor}"


def test_sections_of_the_theory_that_code_cites_exist() -> None:
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "docs/concepts/theory.md").read_text(), re.MULTILINE))
    for path in (path for folder in DIRS for path in (ROOT / folder).rglob("*.py")):
        named = set(re.findall(r"theory\.md, (?:section )?(\d+)", path.read_text()))
        assert named <= sections, f"{path} names sections {named - sections} of docs/concepts/theory.md"


def first_cells(page: str, section: str) -> list[str]:
    """Return the first cell of every row of a section's table, or what is bold in it, without the header."""
    (text,) = re.findall(rf"^#+ {section}\n(.*?)(?=^#|\Z)", (ROOT / page).read_text(), re.M | re.S)
    rows = re.findall(r"^\| (?=(.+?) \|)(?:\*\*(.+?)\*\*)?", text, re.M)
    assert len(rows) >= 4
    return [bold or cell for cell, bold in rows[1:]]


@pytest.mark.parametrize(("section", "tests"), [("Access", "Access"), ("What a caller may try", "Attempts")])
def test_claims_about_security_name_their_tests(section: str, tests: str) -> None:
    untested = set(first_cells("SECURITY.md", section)) - set(
        first_cells("docs/concepts/verification.md", tests)
    )
    assert untested <= {"anyone who sets the environment or flags"}  # the operator, who may do everything
    page = (
        (ROOT / "docs/concepts/verification.md")
        .read_text()
        .partition("## Security")[2]
        .partition("## Faults")[0]
    )
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| -")]
    without_test = [row for row in rows if not re.search(r"`test_\w+` \|$", row)]
    assert all(row.endswith("| test |") for row in without_test), "only the headers of tables"


def test_tests_that_documents_name_exist() -> None:
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {
        name for source in sources for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", source, re.M)
    }
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        named = set(re.findall(r"`(test_\w+)`", page.read_text()))
        assert named <= defined, f"{page.name}: {sorted(named - defined)}"


def test_unknown_targets_and_commands_are_found() -> None:
    check_unrun_command("make serve PYTHON=python3")
    for command in ("make dinner", "hardmacks serve"):
        with pytest.raises(AssertionError, match="no such"):
            check_unrun_command(command)


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("score 0.97", "score 0.9701", True),
        ('{"id": "...", "n": 3}', '{"id": "abc", "n": 3}', True),
        ("first\n...\nlast", "first\n2\n3\nlast", True),
        ("so many ... words", "so many 12 words", True),
        ("score 0.97", "score 0.93", False),
        ("label positive", "label negative", False),
        ("3 leaders", "4 leaders", False),
        ("one line", "one line\nand another", False),
        ("first\n...\nlast", "first\nmiddle", False),
    ],
)
def test_comparison_accepts_last_digits_and_ellipses_only(shown: str, printed: str, equal: bool) -> None:
    assert ("but it prints" in str(describe_difference(shown, printed))) != equal
