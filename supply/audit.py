"""`python -m supply.audit`: every rule over this tree; says what is wrong, or what was checked.

It asks nobody: known vulnerabilities need an adviser on the network and are not its business (SECURITY.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

from supply import assets, rules, sbom
from supply.packages import ROOT, closure, read_declared


def audit(root: Path = ROOT) -> tuple[list[str], str]:
    """What is wrong, and a line on what was looked at."""
    declared = read_declared(root)
    constraints = (root / "constraints.txt").read_text()
    lock = (root / "requirements.lock").read_text()
    runtime = closure(rules.runtime_roots(declared))
    everything = closure(declared.of(*declared.extras))
    wrong = [
        *rules.undeclared_imports(root, declared),
        *rules.unpinned(constraints, declared, everything.values()),
        *rules.other_versions(constraints, everything.values()),
        *rules.unhashed(lock, constraints, runtime),
        *rules.refused_licences(everything.values()),
        *rules.loose_sources(constraints, declared),
        *assets.unnamed(root),
        *sbom.outdated(root),
    ]
    return wrong, f"supply: {len(everything)} packages pinned and licensed, {len(runtime)} of them hashed"


def main() -> int:
    wrong, summary = audit()
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    print(summary if not wrong else f"supply: {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
