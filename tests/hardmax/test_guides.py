"""Every program of the guides for Python runs against a server, in the order of its page."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from paths import ROOT
from server import Server, serving

GUIDES = (
    "guides/python-client", "guides/clouds", "guides/pandas", "guides/shap-export", "guides/scikit-learn",
    "guides/local", "start/notebooks",
)  # fmt: skip
PROGRAM = re.compile(r"^```python\n(.+?)^```", re.MULTILINE | re.DOTALL)


def programs(guide: str) -> list[str]:
    return PROGRAM.findall((ROOT / f"docs/{guide}.md").read_text())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.mark.parametrize(("guide", "number"), [(g, n) for g in GUIDES for n in range(len(programs(g)))])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")  # of shap
def test_guide_program_runs(
    guide: str,
    number: int,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    program = programs(guide)[number].replace("http://127.0.0.1:8000", server.url)
    if "import shap\n" in program and find_spec("shap") is None:
        pytest.skip("needs shap")
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    exec(compile(program, f"{guide}.md", "exec"), names)
    output = capsys.readouterr().out
    if guide == "guides/pandas":
        assert names["labelled"]["label"].tolist() == [5, 1, 3]
        assert names["labelled"]["hardmax_label"].isna().tolist() == [False, False, True]
    elif guide == "guides/shap-export" and "print" in program:
        total, logit = map(float, output.split())
        assert total == pytest.approx(logit, abs=1e-4)
    elif guide == "guides/clouds":
        assert re.search("certified|converged", output)
    elif guide == "guides/python-client":
        assert re.search("positive|negative|neutral", output)
