"""The documents tell the truth: commands work, answers are what comes back, claims are tested."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from server import environ
from walkthrough import LANGUAGES, describe_difference, parse_blocks, parse_steps

README = (ROOT / "README.md").read_text()
# Documents whose commands and programs are run, in order, against a server of their own.
WALKED = [
    "README.md",
    "docs/tutorial.md",
    "docs/abstain.md",
    "docs/counterfactuals.md",
    "docs/clouds.md",
    "docs/migrate.md",
]
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):8000")
FILE = re.compile(r"`([\w./-]+\.(?:csv|ipynb|js|json|jsonl|lock|md|npy|py|sh|toml|tsv|txt|yaml))`")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
ROOMS = "benchmarks deploy docker docs evaluation examples hardmax model_export results service tests".split()
MADE = {"answers.csv", "report.html", "card.json", "sbom.json"}  # by commands, or by whoever makes a bundle
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


class Reader:
    """Somebody who types what the README shows: in a second terminal, while a server keeps the first."""

    def __init__(self, folder: Path, search: str, **given: str) -> None:
        self._folder = folder
        self._given = environ(port=0) | {"PATH": search, "COLUMNS": "120"} | given
        self._first: subprocess.Popen[str] | None = None
        self._port = 0

    def type(self, command: str) -> str:
        """What the command prints. The server listens on a port of its own, not on the README's."""
        if re.match(r"(hardmax|make) serve", command):
            return self._serve(command)
        if command.startswith("source "):
            self._given["PATH"] = f"{self._folder / '.venv/bin'}:{self._given['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._here(command)],
            cwd=self._folder, env=self._given, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def type_program(self, program: str) -> str:
        (self._folder / "program.py").write_text(self._here(program))
        return self.type("python program.py")

    def _serve(self, command: str) -> str:
        """Stop the server, if one runs, and start it in the first terminal; it says where it listens."""
        self.leave()
        self._first = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self._folder, env=self._given, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        assert self._first.stdout is not None
        said = ""
        for line in self._first.stdout:
            said += line
            if found := re.search(r" on http://\S+:(\d+)", line):
                self._port = int(found[1])
                return said
        raise AssertionError(f"$ {command}\n{said}")

    def leave(self) -> None:
        if self._first is not None:
            os.killpg(self._first.pid, signal.SIGTERM)
            self._first.communicate(timeout=30)
            self._first = None

    def _here(self, text: str) -> str:
        return ADDRESS.sub(f"127.0.0.1:{self._port}", text)

    def walk_through(self, document: str, *, everything: bool) -> int:
        """Run all blocks in order, `no-run` ones only with `everything`; return the number of commands."""
        printed = ""
        typed = 0
        for block in parse_blocks(document):
            if block.info == "console" or (everything and block.info == "console no-run"):
                for step in parse_steps(block):
                    if not step.command.startswith("git clone"):
                        self._compare(step.output, self.type(step.command))
                        typed += 1
            elif block.info == "python":
                printed = self.type_program(block.body)
                typed += 1
            elif block.info == "text" and printed:
                self._compare(block.body, printed)
                printed = ""
        return typed

    def _compare(self, shown: str, printed: str) -> None:
        lie = describe_difference(shown, printed) if shown else None
        assert lie is None, lie


def check_named(command: str) -> None:
    """A command that is not run names things that exist."""
    words = command.split()
    if words[0] == "make":
        named = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        assert set(named) <= TARGETS, f"no such make target: {command}"
    elif words[:2] == ["docker", "compose"]:
        assert (ROOT / "compose.yaml").is_file()
    else:
        assert shutil.which(words[0]) or words[0] in ("docker", "kubectl", "git", "source"), (
            f"no such command: {command}"
        )


@pytest.mark.system
@pytest.mark.early
@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", WALKED)
def test_document_runs_every_command_and_program_in_order_as_shown(document: str, tmp_path: Path) -> None:
    for entry in ROOT.iterdir():  # the commands see the tree; what they write stays out of it
        (tmp_path / entry.name).symlink_to(entry)
    reader = Reader(tmp_path, f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    try:
        reader.type("hardmax serve")  # what `make serve` ends with
        assert reader.walk_through((ROOT / document).read_text(), everything=False) >= 2
    finally:
        reader.leave()


def test_files_that_the_documents_have_written_are_ignored_by_git() -> None:
    shown = [step.command for page in WALKED for block in parse_blocks((ROOT / page).read_text())
             if block.info.startswith("console") for step in parse_steps(block)]  # fmt: skip
    written = {
        name for command in shown for name in re.findall(r"--(?:out|html|plot|trajectory) (\S+)", command)
    }
    assert {"answers.csv", "report.html", "cloud.png"} <= written
    names = [*written, "models/mine@1/card.json", "examples/models/boots@1/card.json", "examples/report.html"]
    ignored = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    assert set(names) - set(ignored.stdout.split()) == set()


@pytest.mark.fresh
@pytest.mark.timeout(3000)
def test_readme_works_from_an_empty_environment(tmp_path: Path) -> None:
    """A clone, and nothing installed: `make serve`, and every command after it."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "hardmax")], check=True)
    without = [part for part in os.environ["PATH"].split(":") if Path(part) != Path(sys.executable).parent]
    reader = Reader(tmp_path / "hardmax", ":".join(without), PYTHONPATH="")
    try:
        assert reader.walk_through(README, everything=True) >= 5
    finally:
        reader.leave()


def test_readme_names_only_what_exists() -> None:
    for block in parse_blocks(README):
        assert block.info in LANGUAGES, f"```{block.info} would not be checked: use console, python or text"
        if block.info == "console no-run":
            for step in parse_steps(block):
                check_named(step.command)


def test_documents_are_in_the_table_of_contents() -> None:
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text()
    listed = {
        name for block in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL) for name in block.split()
    }
    pages = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.rglob("*.md")}
    assert pages - listed == {"index"}


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_documents_name_only_files_that_exist_and_link_only_to_places_that_do() -> None:
    tree = [
        path.as_posix() for part in ("*", *(f"{each}/**/*" for each in ROOMS)) for path in ROOT.glob(part)
    ]
    for page in PAGES:
        for name in FILE.findall(page.read_text()):
            here = name in MADE or any(path.endswith(f"/{name}") for path in tree)
            assert here, f"{page.name} names {name}, which is not here"
        for target, _, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#([^)\s]+))?\)", page.read_text()):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}, which is not here"
            assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}#{anchor}"


def test_code_names_only_sections_of_the_theory_that_exist() -> None:
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "docs/theory.md").read_text(), re.MULTILINE))
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        named = set(re.findall(r"docs/theory\.md, (?:section )?(\d+)", path.read_text()))
        assert named <= sections, f"{path} names sections {named - sections} of docs/theory.md"


def first_cells(page: str, section: str) -> list[str]:
    """Return the first cell of every row of the tables in a section, without the header rows."""
    (text,) = re.findall(rf"^#+ {section}\n(.*?)(?=^#|\Z)", (ROOT / page).read_text(), re.M | re.S)
    rows = re.findall(r"^\| (.+?) \|", text, re.M)
    assert len(rows) >= 4
    return rows[1:]


@pytest.mark.parametrize(("section", "tests"), [("Access", "Access"), ("What a caller may try", "Attempts")])
def test_every_claim_of_security_names_the_test_that_shows_it(section: str, tests: str) -> None:
    unshown = set(first_cells("SECURITY.md", section)) - set(first_cells("docs/verification.md", tests))
    assert unshown <= {"anyone who sets the environment or flags"}  # the operator, who may do everything
    page = (ROOT / "docs/verification.md").read_text().partition("## Security")[2].partition("## Faults")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| -")]
    without_a_test = [row for row in rows if not re.search(r"`test_\w+` \|$", row)]
    assert all(row.endswith("| test |") for row in without_a_test), "only the headers of tables"


def test_every_test_that_a_page_names_exists() -> None:
    trees = [ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py")]
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    here = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, functions)}
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        named = set(re.findall(r"`(test_\w+)`", page.read_text()))
        assert named <= here, f"{page.name}: {sorted(named - here)}"


def test_only_the_page_for_engineers_names_tests() -> None:
    citing = {
        page.name
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if re.search(r"`test_\w+`", page.read_text())
    }
    assert citing == {"verification.md"}


def test_check_named_finds_targets_and_commands_that_do_not_exist() -> None:
    check_named("make serve PYTHON=python3")
    for lie in ("make dinner", "hardmacks serve"):
        with pytest.raises(AssertionError, match="no such"):
            check_named(lie)


@pytest.mark.parametrize(
    ("shown", "printed", "true"),
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
def test_walkthrough_forgives_last_digits_and_ellipses_and_no_lies(
    shown: str, printed: str, true: bool
) -> None:
    assert ("but it prints" in str(describe_difference(shown, printed))) != true
