"""Reads a document as a reader would: its commands, its answers and its programs.

    ```console        lines that begin with "$ " are run, in order; what follows each must be what it prints
    ```console no-run the same, not run: make targets, compose files and commands in it must exist
    ```python         is run; a ```text block right after it is what it must print

In an answer `...` stands for anything, and decimals may differ by what another machine may change.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?")
LANGUAGES = {"console", "console no-run", "python", "text", "json", "yaml", "mermaid", ""}
CLOSE = 2e-3


@dataclass(frozen=True)
class Block:
    """A fenced block: its word and what it holds."""

    info: str
    body: str


@dataclass(frozen=True)
class Step:
    """A command and the answer the document shows for it, which may be none."""

    command: str
    answer: str


def blocks(document: str) -> list[Block]:
    return [Block(fence["info"].strip(), fence["body"]) for fence in FENCE.finditer(document)]


def steps(block: Block) -> Iterator[Step]:
    """The commands of a console block; a backslash at the end of a line goes on on the next."""
    command: list[str] = []
    answer: list[str] = []
    continued = False
    for line in block.body.splitlines():
        if line.startswith("$ ") and not continued:
            if command:
                yield Step("\n".join(command), "\n".join(answer))
            command, answer = [line[2:]], []
        elif continued:
            command.append(line)
        else:
            answer.append(line)
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    if command:
        yield Step("\n".join(command), "\n".join(answer))


def differs(shown: str, printed: str) -> str | None:
    """Why what was printed is not what the document shows, or None."""
    wanted = [line.rstrip() for line in shown.strip().splitlines()]
    got = [line.rstrip() for line in printed.strip().splitlines()]
    if _matches(wanted, got):
        return None
    return "\n".join(["the document shows", *wanted, "but it prints", *got])


def _matches(wanted: list[str], got: list[str]) -> bool:
    """Line by line; a line that is only `...` stands for any lines."""
    if not wanted:
        return not got
    if wanted[0].strip() == "...":
        return any(_matches(wanted[1:], got[skipped:]) for skipped in range(len(got) + 1))
    return bool(got) and _line_matches(wanted[0], got[0]) and _matches(wanted[1:], got[1:])


def _line_matches(wanted: str, got: str) -> bool:
    pattern = "".join(
        f"({NUMBER.pattern})" if NUMBER.fullmatch(part) else ".*" if part == "..." else re.escape(part)
        for part in re.split(rf"({NUMBER.pattern}|\.\.\.)", wanted)
        if part
    )
    found = re.fullmatch(pattern, got)
    if not found:
        return False
    shown = [float(number) for number in NUMBER.findall(wanted.replace("...", " "))]
    printed = [float(number) for number in found.groups()]
    return all(abs(a - b) <= CLOSE * max(1.0, abs(a)) for a, b in zip(shown, printed, strict=True))
