"""The code of the guide to the graphs gives the logit of the service."""

import re
from pathlib import Path

import pytest
from bundles import write_head

from service.local import Local
from service.settings import load_settings

GUIDE = Path(__file__).parents[2] / "docs/guides/onnx.md"


@pytest.mark.parametrize("text", ["A superb film, warm and funny.", "It was bad, and a waste of time!"])
def test_guide_runs_graphs_without_the_service(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture
) -> None:
    write_head(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert "service." not in code.replace("service/pretrained", "")
    code = code.replace("service/pretrained/encoder", str(tmp_path / "reader"))
    code = code.replace("service/pretrained/sentiment", str(tmp_path / "tiny"))
    exec(code.replace('"A superb film, warm and funny."', repr(text)), {})
    printed = float(capsys.readouterr().out.split()[0])
    settings = load_settings(models_dir=tmp_path, pretrained_models=False, default_model="tiny")
    with Local(settings) as hardmax:
        assert printed == pytest.approx(hardmax.classify([text])[0].logit, abs=2e-6)
