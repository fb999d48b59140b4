"""`hardmax-export`: the offline side's commands. Each lives in the module of its name; this one only finds
it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from service.errors import HardmaxError

# command: (module, what it is for). Modules are imported when asked for: torch takes seconds to come.
COMMANDS = {
    "download": ("download", "fetch the public IMDb archive"),
    "train": ("train", "train one recipe, or all of them"),
    "export": ("export", "write trained weights as bundles"),
    "verify": ("verify", "compare torch, numpy and ONNX Runtime on many texts"),
    "evaluate": ("evaluate", "measure a bundle on labelled texts"),
    "exact": ("exact", "construct an exact classifier of sequences"),
    "dynamics": ("dynamics", "write the bundle of the dynamics"),
    "reproduce": ("reproduce", "the figures and tables of the paper, from our models"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when it worked; 2, and one line on stderr, when the data or a flag is at fault."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="hardmax-export", description="Train, construct and check models.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, purpose) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        if arguments and arguments[0] == name:
            importlib.import_module(f"model_export.{module}").add_arguments(command)
    chosen = parser.parse_args(arguments)
    chosen_module = importlib.import_module(f"model_export.{COMMANDS[chosen.command][0]}")
    try:
        return int(chosen_module.run(chosen))
    except HardmaxError as problem:
        print(f"hardmax-export: {problem.message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hardmax-export: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
