"""Parses the commands, programs and outputs of a document, and compares outputs.

    ```console        lines that begin with "$ " are run, in order; the lines after each are its output
    ```console no-run the same, not run: make targets, compose files and commands in it must exist
    ```python         is run; a ```text block right after it is its output

In an output `...` stands for anything, and decimals may differ slightly, as on another machine.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?")
LANGUAGES = {"console", "console no-run", "python", "text", "json", "yaml", "mermaid", ""}
TOLERANCE = 2e-3


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string and its text."""

    info: str
    body: str


@dataclass(frozen=True)
class Step:
    """A command and the output that the document shows, which may be empty."""

    command: str
    output: str


def parse_blocks(document: str) -> list[Block]:
    return [Block(fence["info"].strip(), fence["body"]) for fence in FENCE.finditer(document)]


def parse_steps(block: Block) -> Iterator[Step]:
    """Yield the commands of a console block; a backslash continues a command on the next line."""
    for command, output in STEP.findall(block.body):
        yield Step(command, output.removesuffix("\n"))


def describe_difference(shown: str, printed: str) -> str | None:
    """Describe how the printed output differs from that of the document; None if it does not."""
    expected = [line.rstrip() for line in shown.strip().splitlines()]
    actual = [line.rstrip() for line in printed.strip().splitlines()]
    if _matches(expected, actual):
        return None
    return "\n".join(["the document shows", *expected, "but it prints", *actual])


def _matches(expected: list[str], actual: list[str]) -> bool:
    """Compare line by line; a line that is only `...` stands for any lines."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(_matches(expected[1:], actual[skipped:]) for skipped in range(len(actual) + 1))
    return bool(actual) and _line_matches(expected[0], actual[0]) and _matches(expected[1:], actual[1:])


def _line_matches(expected: str, actual: str) -> bool:
    pattern = "".join(
        f"({NUMBER.pattern})" if NUMBER.fullmatch(part) else ".*" if part == "..." else re.escape(part)
        for part in re.split(rf"({NUMBER.pattern}|\.\.\.)", expected)
        if part
    )
    match = re.fullmatch(pattern, actual)
    if not match:
        return False
    shown = [float(number) for number in NUMBER.findall(expected.replace("...", " "))]
    printed = [float(number) for number in match.groups()]
    return all(abs(a - b) <= TOLERANCE * max(1.0, abs(a)) for a, b in zip(shown, printed, strict=True))
