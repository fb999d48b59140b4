"""Record the contract again: `python -m tests.contract.record`. The diff shows what users will notice."""

import sys
import tempfile
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # as pytest's configuration has it

from paths import ROOT

from tests.contract import cli_commands, exact_answers, http_exchanges, python_api
from tests.contract.application import MODEL, run_command, serving, write_models

MAX_LINE_CHARS = 100


class Dumper(yaml.SafeDumper):
    """Writes short values on one line, and texts of several lines as blocks."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        return super().represent_sequence(tag, sequence, flow_style=is_short(sequence))

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
        short = is_short(mapping) and not {"about", "name"} & set(dict(mapping))
        return super().represent_mapping(tag, mapping, flow_style=short)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def represent_text(dumper: Dumper, text: str) -> Any:
    """Write lines as a block of lines."""
    style = "|" if "\n" in text and text.isprintable() is False and "\t" not in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, represent_text)


def is_short(value: Any) -> bool:
    """Whether a value fits on a line."""
    text = repr(value)
    return len(text) < MAX_LINE_CHARS and "\\n" not in text


def dump(value: Any) -> str:
    """Write a value as YAML."""
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text.removesuffix("...\n")


def entries(name: str, values: list[Any]) -> str:
    """Write a long list with a blank line before each entry."""
    return f"{name}:\n" + "".join("\n- " + indent(dump(value), "  ").lstrip() for value in values)


def record_exchanges(path: Path, models_dir: Path) -> None:
    """Send the requests of one file, and write it again with their answers."""
    document = http_exchanges.load_yaml(path)
    settings = document.get("settings", {})
    with serving(models_dir, **settings) as client:
        headers = {"authorization": "Bearer secret"} if "api_keys" in settings else {}
        client.headers.update(headers)
        names = {"model": MODEL}
        if "allowed_hosts" not in settings:
            names = http_exchanges.placeholder_names(client)
        for name in headers:
            del client.headers[name]
        for exchange in document["exchanges"]:
            exchange.pop("answer", None)
            exchange["answer"] = http_exchanges.send(client, http_exchanges.fill(exchange, names))
    head = {name: document[name] for name in ("about", "settings") if name in document}
    path.write_text(dump(head) + entries("exchanges", document["exchanges"]))


def record_commands(models_dir: Path, folder: Path) -> None:
    """Run the commands, and write the file again with their output."""
    document = http_exchanges.load_yaml(cli_commands.FILE)
    for index, command in enumerate(document["commands"]):
        command.pop("answer", None)
        command["answer"] = cli_commands.run(command, folder / str(index), models_dir)
    head = {"about": document["about"], "flags": cli_commands.flags()}
    cli_commands.FILE.write_text(dump(head) + "\n" + entries("commands", document["commands"]))


def main() -> None:
    """Record everything."""
    with tempfile.TemporaryDirectory() as temporary:
        models_dir = Path(temporary) / "models"
        models_dir.mkdir()
        write_models(models_dir)
        for path in sorted(http_exchanges.FOLDER.glob("*.yaml")):
            record_exchanges(path, models_dir)
        record_commands(models_dir, Path(temporary))
        with serving(models_dir) as client:
            for kind in exact_answers.KINDS:
                (exact_answers.FOLDER / f"{kind}.csv").write_text(
                    "\n".join(exact_answers.csv_lines(kind, client)) + "\n"
                )
    python_api.FILE.write_text("\n".join(python_api.describe_lines()))
    _, document, _ = run_command("hardmax", ["openapi"])
    (ROOT / "docs/openapi.json").write_text(document)


if __name__ == "__main__":
    main()
