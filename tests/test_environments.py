"""Peers that cannot be installed are told of in the report, with the installer's own reason."""

from __future__ import annotations

import sys

import pytest

from benchmarks.environments import CannotInstall, _run, environment
from benchmarks.http import is_present
from benchmarks.record import Record
from benchmarks.servers import OURS


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "ERROR: one\nERROR: No matching distribution found\n[notice] a new pip",
            "No matching distribution found",
        ),
        ("Killed\n", "Killed"),
        ("", "it ended with 3"),
    ],
)
def test_installer_that_fails_is_told_in_a_line(said: str, reason: str) -> None:
    program = f"import sys; sys.stderr.write({said!r}); sys.exit(3)"
    with pytest.raises(CannotInstall) as refused:
        _run(sys.executable, "-c", program)
    assert str(refused.value) == reason


def test_our_own_environment_is_always_present() -> None:
    record = Record("http", "HTTP")
    assert environment(None) == sys.executable
    assert is_present(OURS, record)
    assert record.notes == []
