"""`hardmax-export`: the offline side's commands. Each lives in a module of its own; this one finds it."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from service import __version__
from service.errors import HardmaxError

# command: (module, what it is for). Modules are imported when asked for: torch takes seconds to come.
COMMANDS = {
    "train": ("head.train", "train, measure and export a model from your own rows"),
    "verify": ("measure.verify", "compare a served model with the definition, to the bit, on many texts"),
    "meaning": ("measure.meaning", "measure what a served model reads: order, context, everyday sentences"),
    "exact": ("exact.construct", "construct an exact classifier of sequences"),
    "dynamics": ("dynamics.graph", "write the bundle that /dynamics uses"),
    "pretrained": ("pretrained", "train the bundled reader and its sentiment head from the data sets"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when it worked; 2, and one line on stderr, when the data, a flag or the installation is at fault."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(arguments)
    except HardmaxError as problem:
        print(f"hardmax-export: {problem.message}", file=sys.stderr)
        return 2
    except OSError as problem:
        print(f"hardmax-export: {problem}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in ("model_export", "service", ""):
            raise
        needs = f"{missing.name} is not installed here: run `make export` in the checkout"
        print(f"hardmax-export {arguments[0]}: {needs}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hardmax-export: stopped", file=sys.stderr)
        return 130


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="hardmax-export", description="Train, construct and check models.")
    parser.add_argument("--version", action="version", version=f"hardmax-export {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, purpose) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        if arguments and arguments[0] == name:
            importlib.import_module(f"model_export.{module}").add_arguments(command)
    chosen = parser.parse_args(arguments)
    return int(importlib.import_module(f"model_export.{COMMANDS[chosen.command][0]}").run(chosen))


if __name__ == "__main__":
    raise SystemExit(main())
