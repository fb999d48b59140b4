"""Reads the exact versions in requirements files."""

import re

from packaging.utils import canonicalize_name

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")


def read_pins(text: str) -> dict[str, str]:
    """Return canonical name -> version of every line that pins one."""
    pins = filter(None, map(PIN.match, text.splitlines()))
    return {canonicalize_name(pin[1]): pin[2] for pin in pins}
