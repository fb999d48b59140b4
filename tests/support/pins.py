"""Exact versions and digests, as requirements files of pip's form state them."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)")
DIGEST = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def read_pins(text: str) -> dict[str, str]:
    """Canonical name -> version of every line that pins one."""
    found = filter(None, map(PIN.match, text.splitlines()))
    return {canonicalize_name(pin[1]): pin[2] for pin in found}


def read_digests(text: str) -> dict[str, int]:
    """Canonical name -> how many digests its files may have."""
    digests: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if pin := PIN.match(line):
            name = canonicalize_name(pin[1])
            digests[name] = 0
        digests[name] += len(DIGEST.findall(line))
    return digests
