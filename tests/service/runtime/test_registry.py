"""The registry: every bundle is loaded, replaced and refused independently of the others."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bundles import write_stub_bundle

from service.errors import BundleError, NotFound, NotReady
from service.runtime import card
from service.runtime.bundle import Bundle, roll_back
from service.runtime.registry import Loader, Registry, bundle_fingerprints


def load(bundle: Bundle) -> str:
    """Load a bundle without validating its card."""
    return f"{bundle.name} of {int(bundle.card.get('max_length', 8))}"


def recorder() -> tuple[list[str], Loader]:
    """Return a list, and a loader that adds the names of the bundles to it."""
    loaded: list[str] = []
    return loaded, lambda bundle: loaded.append(bundle.name) or bundle.name  # type: ignore[func-returns-value]


def registry_of(folder: Path) -> Registry:
    registry = Registry([folder], {"dynamics": load})
    registry.refresh()
    return registry


def edit_card(folder: Path, **changes: Any) -> None:
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | changes))


def replace(path: Path, create: Callable[[Path], object]) -> None:
    path.unlink()
    create(path)


def point_at_itself(path: Path) -> None:
    path.symlink_to(path.name)


DEEP = json.loads("[" * 254 + "]" * 254)
DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: edit_card(folder, max_length="many"), " cannot be loaded: ValueError: invalid literal"),
    (lambda folder: edit_card(folder, kind="sequences"), " cannot be loaded: KeyError: 'sequences'"),
    (
        lambda folder: edit_card(folder, figures="x" * 50_000_000),
        "/card.json has 50.0 MB; at most 0.3 MB are",
    ),
    (lambda folder: edit_card(folder, figures="\ud800"), "/card.json is not JSON: str is not valid UTF-8"),
    (lambda folder: edit_card(folder, figures=DEEP), "/card.json is not JSON: Recursion limit reached"),
    (
        lambda folder: (folder / "card.json").write_text("[" * 200_000),
        "/card.json is not JSON: maximum recursion",
    ),
    (lambda folder: replace(folder / "card.json", os.mkfifo), "/card.json is not a regular file"),
    (lambda folder: replace(folder / "card.json", Path.mkdir), "/card.json cannot be read: Is a directory"),
    (
        lambda folder: replace(folder / "card.json", point_at_itself),
        "/card.json cannot be read: Too many levels",
    ),
    (lambda folder: replace(folder / "model.onnx", os.mkfifo), "/model.onnx is not a regular file"),
    (
        lambda folder: (folder / "model.onnx").unlink(),
        "/model.onnx cannot be read: No such file or directory",
    ),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_broken_bundle_is_refused_alone_at_the_start_and_at_a_reload(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    write_stub_bundle(tmp_path / "sound", name="sound")
    damage(write_stub_bundle(tmp_path / "broken", name="broken"))
    registry = registry_of(tmp_path)
    assert list(registry.entries) == ["sound"]
    assert list(registry.refused) == ["broken"]
    assert registry.refused["broken"].startswith(f"broken{reason}")
    shutil.rmtree(tmp_path / "broken")
    write_stub_bundle(tmp_path / "broken", name="broken")
    registry.refresh()
    assert (list(registry.entries), registry.refused) == (["broken", "sound"], {})
    damage(tmp_path / "broken")
    registry.refresh()
    assert registry.entries["broken"].model == "broken of 8"  # the loaded model stays
    assert list(registry.refused) == ["broken"]


def test_folder_whose_name_is_not_utf8_is_refused_under_a_printable_name(tmp_path: Path) -> None:
    """GET /info once answered 500 because of such a name."""
    write_stub_bundle(tmp_path / "sound", name="sound")
    folder = os.path.join(os.fsencode(tmp_path), b"\xff\xfe")
    shutil.copytree(os.fsencode(tmp_path / "sound"), folder)
    registry = registry_of(tmp_path)
    assert list(registry.entries) == ["sound"]
    assert dict(registry.refused) == {"??": "??: its card calls it 'sound'; a bundle's folder bears its name"}


def test_why_missing_gives_the_reason_of_a_refusal(tmp_path: Path) -> None:
    write_stub_bundle(tmp_path / "a", name="a")
    write_stub_bundle(tmp_path / "b", name="b", license=None)
    write_stub_bundle(tmp_path / "mine@2", name="mine@2")
    registry = registry_of(tmp_path)
    assert (registry.missing_reason("a"), registry.missing_reason("mine")) == (None, None)
    assert registry.missing_reason("b") == "the model b was refused: b: card.json needs license (str)"
    assert registry.missing_reason("c") == "there is no model c"


def put_head(folder: Path, name: str, graph: bytes) -> None:
    """Write a head on the encoder whose graph has these bytes."""
    encoder = {"name": "reader", "sha256": hashlib.sha256(graph).hexdigest()}
    write_stub_bundle(folder / name, name=name, kind="text-classification", encoder=encoder)


def put_encoder(folder: Path, graph: bytes, **card: Any) -> None:
    """Write an encoder, in the place of one that is there."""
    shutil.rmtree(folder, ignore_errors=True)
    digest = hashlib.sha256(graph).hexdigest()
    write_stub_bundle(folder, graph, name=folder.name, kind="encoder", model_sha256=digest, **card)
    (folder / "pieces.json").write_text("{}")


def test_head_is_loaded_with_its_encoder_and_refused_without_it(tmp_path: Path) -> None:
    loaded, note = recorder()
    registry = Registry([tmp_path], {"encoder": note, "text-classification": note})
    put_head(tmp_path, "a head", b"one")
    registry.refresh()
    digest = hashlib.sha256(b"one").hexdigest()[:12]
    reason = f"a head needs the encoder reader ({digest}), which is not here"
    assert (loaded, registry.refused) == ([], {"a head": reason})
    with pytest.raises(NotFound, match="which is not here"):
        registry.find("a head", "text-classification")
    put_encoder(tmp_path / "reader", b"one")
    registry.refresh()
    assert (loaded, list(registry.entries)) == (["reader", "a head"], ["a head", "reader"])
    os.utime(tmp_path / "reader" / "card.json")  # touched and unchanged
    registry.refresh()
    assert loaded == ["reader", "a head"]
    put_encoder(tmp_path / "reader", b"one", description="with other lists")
    registry.refresh()
    assert loaded == ["reader", "a head"] * 2  # the head is loaded again with it
    put_encoder(tmp_path / "reader", b"two")
    registry.refresh()
    assert registry.refused == {"a head": reason}  # the loaded model stays
    assert registry.find("a head", "text-classification").model == "a head"


def test_head_finds_its_encoder_by_digest_when_another_one_has_its_name(tmp_path: Path) -> None:
    pretrained, custom = tmp_path / "pretrained", tmp_path / "custom"
    put_encoder(pretrained / "reader", b"one")
    put_encoder(custom / "reader", b"two")
    put_head(custom, "mine", b"one")
    put_head(custom, "other", b"two")
    loaders = {"encoder": lambda bundle: bundle.digest, "text-classification": load}
    registry = Registry([pretrained, custom], loaders)
    registry.refresh()
    hidden = f"reader ({hashlib.sha256(b'one').hexdigest()[:12]})"
    assert (list(registry.entries), registry.refused) == (["mine", "other", "reader", hidden], {})
    assert registry.entries["mine"].encoder_digest == registry.entries[hidden].digest
    assert registry.entries["other"].encoder_digest == registry.entries["reader"].digest
    put_encoder(custom / "reader", b"one")  # an identical copy is not loaded twice
    shutil.rmtree(custom / "other")
    registry.refresh()
    assert list(registry.entries) == ["mine", "reader"]


def test_encoder_with_the_graph_of_another_and_other_words_is_refused(tmp_path: Path) -> None:
    put_encoder(tmp_path / "encoder", b"one")
    put_encoder(tmp_path / "encoder-mine", b"one")
    (tmp_path / "encoder-mine" / "pieces.json").write_text('{"names": ["x"]}')
    put_head(tmp_path, "mine", b"one")
    registry = Registry([tmp_path], {"encoder": load, "text-classification": load})
    registry.refresh()
    reason = "encoder-mine has the graph of encoder, but other words: only one can be served"
    assert (list(registry.entries), registry.refused) == (["encoder", "mine"], {"encoder-mine": reason})


def test_older_version_of_an_encoder_is_loaded_for_its_heads(tmp_path: Path) -> None:
    loaded, note = recorder()
    put_encoder(tmp_path / "reader@1", b"one")
    put_encoder(tmp_path / "reader@2", b"two")
    put_head(tmp_path, "mine", b"one")
    registry = Registry([tmp_path], {"encoder": note, "text-classification": note})
    registry.refresh()
    assert (loaded, registry.refused) == (["reader@1", "reader@2", "mine"], {})


def test_broken_encoder_does_not_affect_heads_on_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The models are loaded one by one, as by `hardmax.Local`."""
    put_encoder(tmp_path / "broken", b"two")
    (tmp_path / "broken" / "pieces.json").unlink()
    put_encoder(tmp_path / "reader", b"one")
    put_head(tmp_path, "mine", b"one")
    put_head(tmp_path, "other", b"two")
    registry = Registry([tmp_path], {"encoder": load, "text-classification": load})
    registry.load("mine")
    assert registry.find("mine", "text-classification").model == "mine of 8"
    assert caplog.messages == []  # the encoder of another model is not loaded
    reason = "broken/pieces.json cannot be read: No such file or directory"
    for _ in range(2):
        with pytest.raises(BundleError, match=r"other needs the encoder reader .*, which is not here"):
            registry.load("other")
    assert caplog.messages == [f"bundle broken refused: {reason}"]  # and logged once
    assert dict(registry.refused) == {"broken": reason}


def test_only_the_newest_version_is_loaded_until_another_is_requested(tmp_path: Path) -> None:
    for name in ("mine@1", "mine@2", "mine@10", "other"):
        write_stub_bundle(tmp_path / name, name=name)
    loaded, note = recorder()
    registry = Registry([tmp_path], {"dynamics": note})
    registry.refresh()
    assert (loaded, list(registry.entries)) == (
        ["mine@10", "other"],
        ["mine@1", "mine@10", "mine@2", "other"],
    )
    assert registry.find("mine", "dynamics").model == "mine@10"
    with pytest.raises(NotReady, match="mine@2 is being loaded"):
        registry.find("mine@2", "dynamics")
    for _ in range(2):
        registry.load_version("mine@2")
    assert registry.find("mine@2", "dynamics").model == "mine@2"
    registry.refresh()
    assert loaded == ["mine@10", "other", "mine@2"]
    shutil.rmtree(tmp_path / "mine@10")
    shutil.rmtree(tmp_path / "mine@2")
    registry.refresh()
    registry.load_version("mine@1")
    assert registry.find("mine", "dynamics").model == "mine@1"


def test_older_version_that_cannot_be_loaded_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("mine@1", "mine@2"):
        write_stub_bundle(tmp_path / name, name=name)
    edit_card(tmp_path / "mine@1", max_length="many")
    registry = registry_of(tmp_path)
    assert (list(registry.entries), registry.refused) == (["mine@1", "mine@2"], {})
    registry.load_version("mine@1")
    reason = "mine@1 cannot be loaded: ValueError: invalid literal for int() with base 10: 'many'"
    assert (list(registry.entries), registry.refused) == (["mine@2"], {"mine@1": reason})
    with pytest.raises(NotFound, match="the model mine@1 was refused"):
        registry.find("mine@1", "dynamics")


@pytest.mark.parametrize("alias", ["mine@01", "mine@١", "mine@0", "mine@+1", "mine@1 "])
def test_version_has_one_name(tmp_path: Path, alias: str) -> None:
    write_stub_bundle(tmp_path / "mine@1", name="mine@1")
    write_stub_bundle(tmp_path / alias, name=alias)
    registry = registry_of(tmp_path)
    assert registry.find("mine", "dynamics").model == "mine@1 of 8"
    assert registry.find(alias, "dynamics").model == f"{alias} of 8"  # a bundle, but not a version of mine
    shutil.rmtree(tmp_path / alias)
    registry.refresh()
    with pytest.raises(NotFound):
        registry.find(alias, "dynamics")


def test_cards_are_parsed_again_only_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were once parsed twice a second: twenty cards of .9 MB took 17 % of an idle core."""
    for name in ("a", "b"):
        write_stub_bundle(tmp_path / name, name=name)
    parsed: list[str] = []
    read_card = card.read_card
    monkeypatch.setattr(card, "read_card", lambda path: parsed.append(path.parent.name) or read_card(path))
    for _ in range(5):
        bundle_fingerprints([tmp_path])
    assert sorted(parsed) == ["a", "b"]
    edit_card(tmp_path / "a", description="changed")
    bundle_fingerprints([tmp_path])
    assert sorted(parsed) == ["a", "a", "b"]


def test_rollbacks_beside_reloads_leave_a_model_served_at_every_moment(tmp_path: Path) -> None:
    for number in (1, 2):
        name, graph = f"mine@{number}", str(number).encode()
        digest = hashlib.sha256(graph).hexdigest()
        write_stub_bundle(tmp_path / name, graph, name=name, model_sha256=digest)
    registry = registry_of(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        rollbacks = pool.submit(lambda: [roll_back(tmp_path, "mine")[1] for _ in range(30)])
        seen = {registry.find("mine", "dynamics").name}
        while not rollbacks.done():
            registry.refresh()
            assert not registry.refused
            seen.add(registry.find("mine", "dynamics").name)
    assert rollbacks.result() == [f"mine@{number}" for number in range(3, 33)]
    assert len(seen) > 1
    registry.refresh()
    assert registry.find("mine", "dynamics").model == "mine@32 of 8"
    assert not list(tmp_path.glob(".*"))
