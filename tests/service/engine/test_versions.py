"""Versions of a model in MODELS_DIR: which is served, and going back."""

import hashlib
import json

import pytest
from bundles import write_folder

from service.engine.bundle import find_bundles, newest, roll_back, versions_of
from service.errors import NotFound


def versions(tmp_path, *graphs):
    for number, graph in enumerate(graphs, 1):
        name, digest = f"mine@{number}", hashlib.sha256(graph).hexdigest()
        write_folder(tmp_path / name, graph, name=name, model_sha256=digest)


def test_going_back_serves_the_version_before_and_loses_nothing(tmp_path):
    versions(tmp_path, b"one", b"two")
    assert roll_back(tmp_path, "mine") == ("mine@1", "mine@3")
    assert newest("mine", find_bundles([tmp_path])) == "mine@3"
    assert (tmp_path / "mine@3" / "model.onnx").read_bytes() == b"one"
    assert json.loads((tmp_path / "mine@3" / "card.json").read_text())["again"] == "mine@1"
    assert (tmp_path / "mine@2" / "model.onnx").read_bytes() == b"two"
    assert roll_back(tmp_path, "mine") == ("mine@2", "mine@4")


def test_a_single_version_cannot_go_back(tmp_path):
    versions(tmp_path, b"one")
    with pytest.raises(NotFound, match=r"there is mine@1"):
        roll_back(tmp_path, "mine")


def test_versions_are_numbers_behind_the_name():
    names = ["mine", "mine@2", "mine@10", "mine@x", "yours@3"]
    assert versions_of("mine", names) == {2: "mine@2", 10: "mine@10"}
