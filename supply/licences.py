"""Under what licence a distribution comes, as an SPDX expression, and which licences we take.

Packages state it in three ways, of which two are prose; those the tables cannot read end as "unknown",
which is never taken.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution

from packaging.utils import canonicalize_name

# Permissive ones, and MPL-2.0: it binds changes to its own files, and we change none.
_TAKEN = """
    0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC0-1.0 HPND ISC LLVM-exception MIT MIT-0 MIT-CMU
    MPL-2.0 PSF-2.0 Python-2.0 Unlicense ZPL-2.1 Zlib
"""
TAKEN = frozenset(_TAKEN.split())
UNKNOWN = "unknown"

# Read by hand where the metadata is silent or only prose: the file in which it stands.
BY_HAND = {
    "axe-playwright-python": "MIT",  # LICENSE of its repository
    "matplotlib": "PSF-2.0",  # LICENSE/LICENSE, based on the licence of Python 2
}
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
PROSE = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "mit license": "MIT",
}


def licence_of(package: Distribution) -> str:
    """The SPDX expression of a distribution, or "unknown"."""
    metadata = package.metadata.json
    by_hand = BY_HAND.get(canonicalize_name(str(metadata["name"])))
    if by_hand or "license_expression" in metadata:
        return by_hand or str(metadata["license_expression"])
    prose = str(metadata.get("license", "")).strip().partition("\n")[0].strip()
    if is_expression(prose):
        return prose
    stated = [line.rpartition(" :: ")[2] for line in metadata.get("classifier", ())]
    found = sorted({CLASSIFIERS[line] for line in stated if line in CLASSIFIERS})
    return " OR ".join(found) or PROSE.get(prose.lower(), UNKNOWN)


def identifiers(expression: str) -> set[str]:
    """The licences an SPDX expression names."""
    return set(re.split(r"[\s()]+", expression)) - {"AND", "OR", "WITH", ""}


def is_expression(text: str) -> bool:
    """Whether the text is an SPDX expression of licences we know."""
    return bool(identifiers(text)) and identifiers(text) <= TAKEN


def refused(expression: str) -> set[str]:
    """The licences named that we do not take; an "or" does not help: someone must look and decide."""
    return identifiers(expression) - TAKEN
