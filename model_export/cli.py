"""`hardmax-export`: train, construct and check models. The module of a command is imported on demand."""

import argparse
import importlib
import sys
from collections.abc import Collection, Sequence

from hardmax.formatting import describe_os_error, printable
from service import __version__
from service.errors import HardmaxError

# command: (module, help)
COMMANDS = {
    "train": ("head.command", "train, measure and export a custom model from labelled rows"),
    "exact": ("exact.command", "construct an exact classifier of sequences"),
    "pretrained": ("pretrained", "train the pretrained encoder and its sentiment head from the data sets"),
    "measure": ("measure.accuracy", "measure a model on the everyday sentences, which need no other data"),
    "ablations": (
        "measure.ablations",
        "measure what a model uses: word order, attention, implicit sentiment",
    ),
    "verify": ("measure.verify", "compare a model with its definition, to the bit, on many texts"),
    "dynamics": ("dynamics", "write the graph of point clouds, as the service bundles it"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0 on success, 1 if a comparison found differences, 2 after one line on stderr if the data, a flag or
        the installation is at fault.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(arguments)
    except HardmaxError as error:
        return _fail(error.message)
    except OSError as error:
        return _fail(describe_os_error(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("model_export", "service", "evaluation", "hardmax", ""):
            raise
        return _fail(f"{error.name} is not installed: run `make export` in the checkout")
    except KeyboardInterrupt:
        _fail("stopped")
        return 130


def _fail(message: str) -> int:
    print(f"hardmax-export: {printable(message)}", file=sys.stderr)
    return 2


def build_parser(loaded: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser, with the flags of the `loaded` commands, whose modules are imported."""
    parser = argparse.ArgumentParser(prog="hardmax-export", description="Train, construct and check models.")
    parser.add_argument("--version", action="version", version=f"hardmax-export {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, description) in COMMANDS.items():
        command = commands.add_parser(name, help=description, description=description)
        if name in loaded:
            importlib.import_module(f"model_export.{module}").add_arguments(command)
    return parser


def _run(arguments: Sequence[str]) -> int:
    parsed = build_parser(arguments[:1]).parse_args(arguments)
    return int(importlib.import_module(f"model_export.{COMMANDS[parsed.command][0]}").run(parsed))


if __name__ == "__main__":
    raise SystemExit(main())
