"""`hardmax serve | classify | evaluate | dynamics | control | sequences | models | openapi`.

Each group of commands is a module: it adds its parsers, reads, asks, prints. People get tables on standard
output and progress on standard error; `--json` gives programs the API's own answer. An error is one line and
exit code 2.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from service import __version__
from service.cli import classify, clouds, evaluate, serving
from service.cli.options import tell
from service.errors import HardmaxError, needs

BAD_INPUT = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 the answer is no, 2 an error of one line, 130 stopped."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except HardmaxError as refused:
        tell(refused.message)
        return BAD_INPUT
    except ModuleNotFoundError as missing:
        if missing.name != "onnxruntime":
            raise
        tell(needs("to compute here", "onnxruntime", "cpu") + ", or --server URL")
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def build_parser() -> argparse.ArgumentParser:
    purpose = "Classify texts and run clouds of points by hardmax transformers, with the reason."
    parser = argparse.ArgumentParser(prog="hardmax", description=purpose)
    parser.add_argument("--version", action="version", version=f"hardmax {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for group in (serving, classify, evaluate, clouds):
        group.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
