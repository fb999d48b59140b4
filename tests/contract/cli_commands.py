"""Runs the commands of `commands.yaml`, and reduces their output to what the contract fixes."""

import json
import re
from pathlib import Path
from typing import Any

from tests.contract.application import run_command
from tests.contract.http_exchanges import normalize

FILE = Path(__file__).parent / "commands.yaml"


def run(command: dict[str, Any], folder: Path, models_dir: Path) -> dict[str, Any]:
    """Run a command in a new folder, and return its exit code, output and files."""
    folder.mkdir()
    files = command.get("files", {})
    for name, content in files.items():
        (folder / name).write_text(content)
    stdin = command.get("stdin", "")
    code, stdout, stderr = run_command(
        "hardmax", command["run"], stdin=stdin, folder=folder, models_dir=models_dir
    )
    answer: dict[str, Any] = {"exit": code}
    if "--json" in command["run"] and stdout:
        answer["json"] = normalize(json.loads(stdout))
    elif stdout:
        answer["stdout"] = stdout
    if stderr:
        answer["stderr"] = stderr.replace(str(folder), "<folder>")
    new_files = [path for path in sorted(folder.iterdir()) if path.name not in files]
    if new_files:
        answer["made"] = {path.name: path.read_text() for path in new_files}
    return answer


def flags() -> dict[str, list[str]]:
    """Return the flags of every command."""
    _, help_text, _ = run_command("hardmax", ["--help"])
    flags_by_command = {}
    for command in re.findall(r"^    (\w+)  ", help_text, re.MULTILINE):
        _, text, _ = run_command("hardmax", [command, "--help"])
        options = text.partition("options:")[2]
        names = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", options, re.MULTILINE))
        flags_by_command[command] = sorted(names - {"--help"})
    return flags_by_command
