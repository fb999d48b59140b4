"""One command of `commands.yaml`: how it is run, and what of its output is part of the contract."""

import json
import re
from pathlib import Path
from typing import Any

from tests.contract.exchanging import normalize
from tests.contract.served import run_command

FILE = Path(__file__).parent / "commands.yaml"


def run(command: dict[str, Any], folder: Path, models_dir: Path) -> dict[str, Any]:
    """Run a command in a folder of its own, and return its exit code, output and files."""
    folder.mkdir()
    given = command.get("files", {})
    for name, content in given.items():
        (folder / name).write_text(content)
    stdin = command.get("stdin", "")
    code, output, errors = run_command(
        "hardmax", command["run"], stdin=stdin, folder=folder, models_dir=models_dir
    )
    answer: dict[str, Any] = {"exit": code}
    if "--json" in command["run"] and output:
        answer["json"] = normalize(json.loads(output))
    elif output:
        answer["stdout"] = output
    if errors:
        answer["stderr"] = errors.replace(str(folder), "<folder>")
    made = [path for path in sorted(folder.iterdir()) if path.name not in given]
    if made:
        answer["made"] = {path.name: path.read_text() for path in made}
    return answer


def flags() -> dict[str, list[str]]:
    """Return the flags of every command."""
    _, top, _ = run_command("hardmax", ["--help"])
    names = re.findall(r"^    (\w+)  ", top, re.MULTILINE)
    found = {}
    for name in names:
        _, text, _ = run_command("hardmax", [name, "--help"])
        listed = text.partition("options:")[2]
        found[name] = sorted(set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", listed, re.MULTILINE)) - {"--help"})
    return found
