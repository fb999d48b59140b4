"""The models being served, by name: loaded from bundles, replaced and removed while requests run.

Requests take a snapshot and never wait. A refresh builds the next snapshot and replaces the previous one as a
whole: a request that began with a model keeps it. A bundle that is broken, or that its loader cannot load, is
refused with the reason; other bundles are loaded, and the model that was served under its name stays. The
caller passes a loader for each kind of model, which returns a model that has run once. Encoders are loaded
first: a head whose encoder is missing is refused, and loaded again when its encoder is replaced.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from service.errors import BundleError, NotFound, NotReady
from service.runtime.bundle import (
    Bundle,
    default_model,
    find_served,
    is_encoder_of,
    is_superseded,
    kind_of,
    newest_version,
    read_bundle,
)
from service.runtime.card import ENCODER, HEAD
from service.settings import Settings

log = logging.getLogger(__name__)

MODEL_PURPOSE = {
    HEAD: "labels texts",
    "sequences": "labels sequences",
    "dynamics": "moves clouds",
}

Loader = Callable[[Bundle], Any]
Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class RegistryEntry:
    """A model that is served, without the bytes of its bundle."""

    name: str
    kind: str
    digest: str  # of the bundle
    encoder_digest: str | None  # of a head: the digest of its encoder's bundle
    card: Mapping[str, Any]
    model: Any  # None: an older version, which is loaded on first use
    folder: Path
    loaded_at: datetime
    files: Fingerprint


class Registry:
    """The models that are served, by name."""

    def __init__(self, folders: Sequence[Path], loaders: Mapping[str, Loader]) -> None:
        self.folders = folders
        self.loaders = loaders
        self.entries: Mapping[str, RegistryEntry] = {}
        self.refused: Mapping[str, str] = {}  # names of bundles that could not be loaded, and why
        self._lock = Lock()  # entries are replaced by `refresh` and by `load_version`, each in a thread

    def get(self, name: str) -> RegistryEntry | None:
        """Return the entry of that name, or the newest version of it; None if there is none."""
        entries = self.entries
        return entries.get(name) or entries.get(newest_version(name, entries))

    def find(self, name: str, kind: str) -> RegistryEntry:
        """Return the entry of a model that is loaded, by its name and kind.

        Raises:
            NotFound: There is none. The message lists the others.
            NotReady: It is an older version, which `load_version` has not loaded.
        """
        entry = self.get(name)
        if entry is None and newest_version(name, self.refused) in self.refused:
            raise NotFound(str(self.missing_reason(name)), param="model")
        if entry is None or entry.kind != kind:
            names = ", ".join(entry.name for entry in self.entries.values() if entry.kind == kind)
            hint = f"; there are: {names}" if names else ""
            raise NotFound(f"no model {name!r} {MODEL_PURPOSE[kind]}{hint}", param="model")
        if entry.model is None:
            raise NotReady(f"the model {entry.name} is being loaded; try again shortly")
        return entry

    def load_version(self, name: str) -> None:
        """Load an older version on its first use, or refuse it. Slow, as `refresh` is."""
        entry = self.entries.get(name)
        if entry is None or entry.model is not None:
            return
        try:
            loaded = replace(entry, model=self._load(read_bundle(entry.folder)))
        except BundleError as error:
            with self._lock:
                self.entries = {other: self.entries[other] for other in self.entries if other != name}
                self.refused = {**self.refused, name: error.message}
            return
        with self._lock:
            if self.entries.get(name) is entry:
                self.entries = {**self.entries, name: loaded}

    def missing_reason(self, name: str) -> str | None:
        """Return why no model of that name is served, or None if one is."""
        if self.get(name) is not None:
            return None
        reason = self.refused.get(newest_version(name, self.refused))
        return f"the model {name} was refused: {reason}" if reason else f"there is no model {name}"

    def refresh(self) -> None:
        """Load new bundles of the folders and drop removed ones. Slow: call it in a thread, one at a time."""
        entries: dict[str, RegistryEntry] = {}
        refused: dict[str, str] = {}
        bundles = self._bundles()
        for name in sorted(bundles, key=lambda name: kind_of(bundles[name]) != ENCODER):
            try:
                # an older encoder may be that of a head
                lazy = kind_of(bundles[name]) != ENCODER and is_superseded(name, bundles)
                entries[name] = self._keep_or_load(name, bundles[name], entries, lazy=lazy)
            except BundleError as error:
                refused[_encodable(name)] = _encodable(error.message)
                if name in self.entries:
                    entries[name] = self.entries[name]
        with self._lock:
            self.entries, self.refused = dict(sorted(entries.items())), refused

    def is_behind(self, folders: Mapping[str, Fingerprint | str]) -> bool:
        """Return whether the folders have changed since the last refresh, or while it ran."""
        served = {name: entry.files for name, entry in self.entries.items()}
        loadable = {name: files for name, files in folders.items() if _encodable(name) not in self.refused}
        return not served.keys() <= folders.keys() or any(
            served.get(name) != loadable[name] for name in loadable
        )

    def load(self, name: str) -> None:
        """Load only this model, and for a head its encoder. A broken encoder is skipped with a warning."""
        bundles = self._bundles()
        name = newest_version(name, bundles)
        if name not in bundles:
            models = [model for model in bundles if kind_of(bundles[model]) != ENCODER]
            raise NotFound(f"no model {name!r} here; there are {', '.join(models) or 'none'}", param="model")
        entries = dict(self.entries)
        encoders = [bundle for bundle in bundles if kind_of(bundles[bundle]) == ENCODER]
        matching = [encoder for encoder in encoders if is_encoder_of(bundles[encoder], bundles[name])]
        for encoder in matching or encoders if kind_of(bundles[name]) == HEAD else ():
            try:
                entries[encoder] = self._keep_or_load(encoder, bundles[encoder], entries)
            except BundleError as error:
                if encoder not in self.refused:
                    log.warning("bundle %s refused: %s", encoder, error.message)
                self.refused = {**self.refused, encoder: error.message}
        entries[name] = self._keep_or_load(name, bundles[name], entries)
        self.entries = entries

    def _bundles(self) -> dict[str, Path]:
        try:
            return find_served(self.folders)
        except OSError as error:
            # the folder is missing for the moment (a mount is being swapped): keep the present models
            log.warning("MODELS_DIR cannot be read: %s", error.strerror)
            return {name: entry.folder for name, entry in self.entries.items()}

    def _keep_or_load(
        self, name: str, folder: Path, encoders: Mapping[str, RegistryEntry], *, lazy: bool = False
    ) -> RegistryEntry:
        """Return the present entry if its bundle and encoder have not changed, otherwise a new one."""
        old = self.entries.get(name)
        files = fingerprint(folder)
        if old is not None and old.files == files and old.encoder_digest == _encoder_digest(old, encoders):
            return old
        bundle = read_bundle(folder)  # after the fingerprint: the next refresh finds a change in between
        _check_graph_is_unique(name, bundle, encoders)
        encoder_digest = _encoder_digest(bundle, encoders)
        if old is not None and (old.digest, old.encoder_digest) == (bundle.digest, encoder_digest):
            return replace(old, folder=folder, files=files)
        return RegistryEntry(
            name=name,
            kind=bundle.kind,
            digest=bundle.digest,
            encoder_digest=encoder_digest,
            card=bundle.card,
            model=None if lazy else self._load(bundle),
            folder=folder,
            loaded_at=datetime.now(UTC),
            files=files,
        )

    def _load(self, bundle: Bundle) -> Any:
        try:
            return self.loaders[bundle.kind](bundle)
        except BundleError:
            raise
        except Exception as error:  # the edge of a worker loop: the other bundles are loaded
            log.warning("bundle %s cannot be loaded", bundle.name, exc_info=True)
            problem = f"{bundle.name} cannot be loaded: {type(error).__name__}: {error}"
            raise BundleError(problem, param=bundle.name) from error


def _encoder_digest(head: Bundle | RegistryEntry, entries: Mapping[str, RegistryEntry]) -> str | None:
    """Return the digest of the encoder of a head, or None for other kinds.

    Raises:
        BundleError: The encoder is missing.
    """
    if head.kind != HEAD:
        return None
    expected = head.card["encoder"]
    for entry in entries.values():
        if entry.kind == ENCODER and entry.card["model_sha256"] == expected["sha256"]:
            return entry.digest
    encoder = f"{expected['name']} ({expected['sha256'][:12]})"
    raise BundleError(f"{head.name} needs the encoder {encoder}, which is not here", param="encoder")


def _check_graph_is_unique(name: str, bundle: Bundle, entries: Mapping[str, RegistryEntry]) -> None:
    """Refuse an encoder with the graph of another one but other words: heads name only the graph."""
    for entry in entries.values():
        is_same = bundle.kind == entry.kind == ENCODER and entry.name != name
        if is_same and entry.card["model_sha256"] == bundle.card["model_sha256"]:
            problem = f"{name} has the graph of {entry.name}, but other words: only one can be served"
            raise BundleError(problem, param=name)


def _encodable(text: str) -> str:
    """Return a text that can be encoded: the name of a folder need not be UTF-8."""
    return text.encode("utf-8", "replace").decode()


def with_default_model(settings: Settings) -> Settings:
    """Return the settings with a default model, chosen once: a bundle added later changes no answer."""
    name = settings.default_model or default_model(settings.model_folders)
    return settings.model_copy(update={"default_model": name})


def fingerprint(folder: Path) -> Fingerprint:
    """Return a value that changes whenever the files of a bundle change, without reading them."""
    try:
        files = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    except OSError as error:
        raise BundleError(f"{folder.name} cannot be read: {error.strerror}", param=folder.name) from None
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files)


def bundle_fingerprints(folders: Sequence[Path]) -> Mapping[str, Fingerprint | str] | None:
    """Return the fingerprints of all bundles, or None if a folder cannot be read at this moment."""
    fingerprints: dict[str, Fingerprint | str] = {}
    try:
        for name, folder in find_served(folders).items():
            try:
                fingerprints[name] = fingerprint(folder)
            except BundleError as error:
                fingerprints[name] = error.message
    except OSError:
        return None
    return fingerprints
