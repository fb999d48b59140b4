"""`hardmax.Local`, the client without a server: it has the interface and the errors of a server."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from bundles import write_head, write_stub_bundle
from graphs import change_graph, loop_forever

from hardmax import Local
from service.errors import InvalidInput, NotFound, NotReady
from service.runtime import watchdog
from service.settings import Settings


@pytest.fixture
def hardmax(tmp_path: Path) -> Local:
    write_head(tmp_path, name="mine")
    return Local(Settings(models_dir=tmp_path, default_model="mine"))


def test_local_serves_custom_models_and_the_pretrained_ones(hardmax: Local) -> None:
    answers = hardmax.classify(["superb film", "awful"])
    assert (answers.model, answers.usage.texts) == ("mine", 2)
    assert [answer.label for answer in answers] == ["positive", "negative"]
    assert {"mine", "reader", "dynamics"} <= {card.name for card in hardmax.models()}
    assert [card.name for card in hardmax.models() if card.default] == ["mine"]
    assert hardmax.dynamics([[1.0, 1.0], [-1.0, 0.0]], alpha=0.5, include=[]).status == "certified"


def test_local_without_the_model_says_where_custom_models_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no model 'mine' here; there are .*sentiment") as exc_info:
        Local(Settings()).classify("good", model="mine")
    assert exc_info.value.message.endswith("are in the folder that --models-dir or models_dir names")
    with pytest.raises(NotFound) as exc_info:
        Local(Settings(models_dir=tmp_path)).classify("good", model="mine")
    assert "models_dir" not in exc_info.value.message
    assert "encoder" not in exc_info.value.message


def test_local_refuses_settings_that_it_would_ignore() -> None:
    for arguments, options in (((Settings(),), {"models_dir": "models"}), (("models",), {})):
        with pytest.raises(InvalidInput, match="Local takes Settings, or settings by name"):
            Local(*arguments, **options)  # type: ignore[arg-type]


def test_local_ignores_broken_bundles(tmp_path: Path) -> None:
    for name in ("mine@1", "mine@2"):
        write_head(tmp_path, name=name)
    write_stub_bundle(tmp_path / "broken", name="broken", license=None)
    write_stub_bundle(tmp_path / "reading", name="reading", kind="encoder")  # without its vocabulary
    hardmax = Local(Settings(models_dir=tmp_path, default_model="mine"))
    assert hardmax.classify("superb film").label == "positive"
    cards = hardmax.models()
    assert {"mine@1", "mine@2", "reader"} <= {card.name for card in cards}
    assert not {"broken", "reading"} & {card.name for card in cards}
    assert [card.name for card in cards if card.default] == ["mine@2"]


def test_local_stops_a_model_that_loops_though_it_proves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_head(tmp_path, name="mine")
    change_graph(tmp_path / "mine", partial(loop_forever, min_tokens=50))
    monkeypatch.setattr(watchdog, "TICK_S", 0.02)
    hardmax = Local(Settings(models_dir=tmp_path, default_model="mine"))
    assert hardmax.classify("superb film").label == "positive"
    with pytest.raises(NotReady, match="a run of mine took more than 30 s"):
        hardmax.classify("superb film " * 60)


def test_local_has_the_options_of_a_server(hardmax: Local, tmp_path: Path) -> None:
    """They are counterfactuals, words left out, full explanations, and several models at once."""
    answer = hardmax.classify("superb film", flip=True, explain="full")
    flip = answer.flip
    ablated = hardmax.classify("superb film", without=[flip.without[0].spans[0]])
    assert (ablated.label, ablated.score) == (flip.label, flip.score) != (answer.label, answer.score)
    assert answer.words[0].attends_to == [[1], [1]]
    write_head(tmp_path, name="yours", seed=1)
    answers = hardmax.classify(["superb film"], model=["mine", "yours"])
    assert (answers.model, answers[0].label) == ("mine, yours", answer.label)
    assert answers[0].answers["mine"].logit == answer.logit


def test_local_takes_leaders_and_assignments_as_a_server_does(hardmax: Local) -> None:
    """Indices may be integers of numpy; anything else is refused by its place."""
    points = [[1.0, 0.2], [0.9, 0.8], [-0.6, 1.0], [0.2, -1.0]]
    result = hardmax.control(points, leaders=np.array([0, 2]))  # type: ignore[arg-type]
    assert result.feasible is True
    assert {0, 2} <= {leader.index for leader in result.dynamics.leaders}
    assert hardmax.control(points, assignment={1: np.int64(0)}).feasible is True  # type: ignore[dict-item]
    with pytest.raises(InvalidInput) as exc_info:
        hardmax.control(points, leaders=["first"])  # type: ignore[list-item]
    assert exc_info.value.param == "leaders[0]"
