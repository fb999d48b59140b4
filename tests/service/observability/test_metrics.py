"""Metrics: the folder that several workers share, counts of ended workers, and series of models."""

import os
import tempfile
from pathlib import Path

import pytest
from server import run_python

from service.errors import ConfigurationError
from service.observability import metrics
from service.observability.metrics import MULTIPROCESS_DIR, Metrics, shared_metrics

IMPORT = "from service.observability.metrics import Metrics"
COUNT = f"""
import os
{IMPORT}
metrics = Metrics()
metrics.count_response("/classify", "POST", 200, 0.01)
metrics.count_response("/classify", "POST", 200, 0.01)
metrics.set_model_served("tiny", "text-classification", "v", True)
print(os.getpid())
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that does not exist yet, named by the operator."""
    folder = tmp_path / "not" / "there"
    monkeypatch.setenv(MULTIPROCESS_DIR, str(folder))
    return folder


def test_shared_metrics_touch_no_other_files(parent: Path) -> None:
    parent.mkdir(parents=True)
    (parent / "thesis.db").write_text("ten years of work")
    (parent / "hardmax-metrics-notes").mkdir()
    (parent / "hardmax-metrics-notes" / "notes.txt").write_text("mine")
    with shared_metrics():
        folder = Path(os.environ[MULTIPROCESS_DIR])
        assert folder.parent == parent
        (folder / "counter_1.db").touch()
    assert not folder.exists()
    assert (parent / "thesis.db").read_text() == "ten years of work"
    assert (parent / "hardmax-metrics-notes" / "notes.txt").read_text() == "mine"


def test_shared_metrics_make_a_missing_folder_and_name_one_that_cannot_be_made(parent: Path) -> None:
    with shared_metrics():
        assert parent.is_dir()
    parent.rmdir()
    parent.write_text("a file")
    os.environ[MULTIPROCESS_DIR] = str(parent)
    refusal = pytest.raises(ConfigurationError, match=f"{MULTIPROCESS_DIR}: .* a folder that can be written")
    with refusal, shared_metrics():
        pass


def test_shared_metrics_need_a_folder_that_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start once ended in a traceback, in a container with a read-only disk and no /tmp."""
    monkeypatch.delenv(MULTIPROCESS_DIR, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    refusal = pytest.raises(ConfigurationError, match=f"{MULTIPROCESS_DIR}: several workers need a folder")
    with refusal, shared_metrics():
        pass


def test_shared_metrics_need_a_folder_with_room(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers on a full disk once started, and ended with SIGBUS at their first request."""
    monkeypatch.setattr(metrics, "MIN_FREE_BYTES", 1 << 60)
    refusal = pytest.raises(ConfigurationError, match=f"{parent} has .* MB left")
    with refusal, shared_metrics():
        pass
    assert not list(parent.iterdir())


def test_counts_of_ended_workers_stay_and_their_files_and_gauges_go(parent: Path) -> None:
    """Every worker that ended once left files of 24 kB."""
    with shared_metrics():
        for count in (1, 2):
            run_python(COUNT)
            rendered = run_python(f"{IMPORT}\nprint(Metrics().render().decode())").stdout
            assert f'route="/classify",status="200"}} {2 * count}.0' in rendered
        run_python(f"{IMPORT}\nMetrics().render()")
        (folder,) = parent.iterdir()
        owners = {path.stem.rpartition("_")[2] for path in folder.iterdir()}
        assert {"ended", "lock"} < owners
        assert len(owners) == 3  # and the process that rendered last
    assert 'hardmax_requests_total{method="POST",route="/classify",status="200"} 4.0' in rendered
    assert 'hardmax_request_duration_seconds_count{route="/classify"} 4.0' in rendered
    assert "hardmax_model_info{" not in rendered  # a gauge of running workers


def test_models_that_are_no_longer_served_have_no_series() -> None:
    """Every replacement of a model once left a series."""
    metrics = Metrics()
    for version in range(5):
        metrics.set_model_served("mine", "text-classification", f"v{version}", True)
        metrics.set_model_served("mine", "text-classification", f"v{version}", version == 4)
    info = [line for line in metrics.render().decode().splitlines() if line.startswith("hardmax_model_info{")]
    assert info == ['hardmax_model_info{digest="v4",kind="text-classification",model="mine"} 1.0']


def test_verdicts_are_counted_per_model() -> None:
    metrics = Metrics()
    confident = {"label": "positive", "abstain_reason": None, "score": 0.9, "n_words": 10, "unknown": 1}
    for answer in (confident, confident, {**confident, "abstain_reason": "low_confidence", "score": 0.52}):
        metrics.count_verdict("mine", answer)
    metrics.count_verdict("other", {**confident, "n_words": 0, "unknown": 0})
    lines = metrics.render().decode().splitlines()
    for line in (
        'hardmax_verdicts_total{abstain_reason="none",label="positive",model="mine"} 2.0',
        'hardmax_verdicts_total{abstain_reason="low_confidence",label="positive",model="mine"} 1.0',
        'hardmax_verdicts_total{abstain_reason="none",label="positive",model="other"} 1.0',
        'hardmax_verdict_score_bucket{le="0.55",model="mine"} 1.0',
        'hardmax_text_known_share_bucket{le="0.85",model="mine"} 0.0',
        'hardmax_text_known_share_bucket{le="0.95",model="mine"} 3.0',
    ):
        assert line in lines
