"""Which of our functions run for one request with a text of three words.

    python -m benchmarks.path             functions, calls, modules
    python -m benchmarks.path --list      each function with its calls

The application is called without a server, so uvicorn is not part of it. Of several requests the one with the
fewest calls counts: the service samples its gauges beside others. A generator or coroutine counts
once; comprehensions are part of their function, as they are from Python 3.12 on.
"""

import argparse
import asyncio
import json
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from service.app import create_app
from service.settings import Settings

PACKAGES = ("service", "hardmax")
REQUEST = {"input": "A superb film."}


class CallCounter:
    """Count the calls of our functions in all threads."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.is_counting = False
        self._root = str(Path(__file__).parents[1]) + "/"

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if self.is_counting and event == "call" and code.co_filename.startswith(self._root):
            path = code.co_filename.removeprefix(self._root)
            begins = frame.f_lineno == code.co_firstlineno or frame.f_lasti < 4
            if begins and path.startswith(PACKAGES) and not code.co_name.startswith("<"):
                self.calls[path, code.co_qualname] += 1


async def count_calls() -> Counter[tuple[str, str]]:
    """Count what one request runs, once the service is warm."""
    counter = CallCounter()
    threading.setprofile(counter)
    app = create_app(Settings(log_level="info"))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for _ in range(3):
                (await client.post("/classify", json=REQUEST)).raise_for_status()
            sys.setprofile(counter)
            counted = []
            for _ in range(5):
                counter.calls = Counter()
                counter.is_counting = True
                await client.post("/classify", json=REQUEST)
                counter.is_counting = False
                counted.append(counter.calls)
            sys.setprofile(None)
    threading.setprofile(None)
    return min(counted, key=Counter.total)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="each function with its calls")
    parser.add_argument("--quick", action="store_true", help="the same: it takes a second")
    options = parser.parse_args(arguments)
    calls = asyncio.run(count_calls())
    found: dict[str, Any] = {
        "functions": len(calls),
        "calls": calls.total(),
        "modules": len({path for path, _ in calls}),
    }
    if options.list:
        found["calls of each"] = {f"{path}:{name}": n for (path, name), n in sorted(calls.items())}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
