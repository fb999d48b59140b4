"""The models being served, by name: loaded from bundles, replaced and removed while requests run.

Readers take a snapshot and never wait. A refresh builds the next snapshot beside it and swaps it in whole:
a request that began with a model keeps it. Each bundle fails alone: one that is broken, or that its loader
cannot load, is refused with its reason, and what was served under its name stays. A loader for each kind of
model is passed in; it returns a model that has run once. Readers are loaded first: a head whose reader is not
there is refused, and loaded again when its reader is replaced.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from service.errors import BundleError, NotFound
from service.runtime.bundle import (
    ENCODER,
    HEAD,
    Bundle,
    default_model,
    find_served,
    is_superseded,
    kind_of,
    newest_version,
    read_bundle,
)
from service.settings import Settings

log = logging.getLogger(__name__)

MODEL_PURPOSE = {
    HEAD: "labels texts",
    "sequences": "labels sequences",
    "dynamics": "moves clouds",
}  # models of a kind

Loader = Callable[[Bundle], Any]
Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class Entry:
    """A model that is served. The bundle's bytes are let go once it is loaded."""

    name: str
    kind: str
    version: str
    encoder_digest: str | None  # of a head: the version of its reader
    card: Mapping[str, Any]
    model: Any  # None: an older version, which is loaded when it is asked for
    folder: Path
    loaded_at: datetime
    files: Fingerprint


class Registry:
    def __init__(self, folders: Sequence[Path], loaders: Mapping[str, Loader]) -> None:
        self.folders = folders
        self.loaders = loaders
        self.entries: Mapping[str, Entry] = {}
        self.refused: Mapping[str, str] = {}  # names of bundles that could not be loaded, and why
        self._lock = Lock()  # entries are replaced by a thread and by whoever asks for an older version

    def get(self, name: str) -> Entry | None:
        """What is served under that name: of a name with versions the newest."""
        entries = self.entries
        return entries.get(name) or entries.get(newest_version(name, entries))

    def find(self, name: str, kind: str) -> Any:
        """The model of that name, which must be of that kind."""
        entry = self.get(name)
        if entry is None and newest_version(name, self.refused) in self.refused:
            raise NotFound(str(self.why_missing(name)), param="model")
        if entry is None or entry.kind != kind:
            have = ", ".join(each.name for each in self.entries.values() if each.kind == kind)
            others = f"; there are: {have}" if have else ""  # of those that are loaded
            raise NotFound(f"no model {name!r} {MODEL_PURPOSE[kind]}{others}", param="model")
        return (entry if entry.model is not None else self._loaded(entry)).model

    def _loaded(self, entry: Entry) -> Entry:
        """The same with its model. An older version of a head takes milliseconds: it shares the graph."""
        with self._lock:
            current = self.entries.get(entry.name, entry)
            if current.model is not None:
                return current
            try:
                loaded = replace(current, model=self._load(read_bundle(current.folder)))
            except BundleError as broken:
                raise NotFound(f"the model {entry.name} cannot be loaded: {broken.message}") from broken
            self.entries = {**self.entries, entry.name: loaded}
            return loaded

    def why_missing(self, name: str) -> str | None:
        """Why no model of that name is served, or None where one is."""
        if self.get(name) is not None:
            return None
        reason = self.refused.get(newest_version(name, self.refused))
        return f"the model {name} was refused: {reason}" if reason else f"there is no model {name}"

    def refresh(self) -> None:
        """Bring the models in step with the folders. Slow: for a thread, one at a time."""
        entries: dict[str, Entry] = {}
        refused: dict[str, str] = {}
        bundles = self._bundles()
        for name in sorted(bundles, key=lambda name: kind_of(bundles[name]) != ENCODER):
            try:
                lazy = is_superseded(name, bundles)
                entries[name] = self._keep_or_load(name, bundles[name], entries, lazy=lazy)
            except BundleError as broken:
                refused[_shown(name)] = _shown(broken.message)
                if name in self.entries:
                    entries[name] = self.entries[name]
        with self._lock:
            self.entries, self.refused = dict(sorted(entries.items())), refused

    def is_behind(self, found: Mapping[str, Fingerprint | str]) -> bool:
        """Whether these bundles are not those that are served or refused: one may have come or gone while
        the others were read.
        """
        kept = {name: entry.files for name, entry in self.entries.items()}
        told = {name: files for name, files in found.items() if _shown(name) not in self.refused}
        return not kept.keys() <= found.keys() or any(kept.get(name) != told[name] for name in told)

    def load(self, name: str) -> None:
        """Load this model alone, and for a head the readers: for callers who need no other model. A head on
        another reader does without a broken one.
        """
        bundles = self._bundles()
        name = newest_version(name, bundles)
        if name not in bundles:
            raise NotFound(f"no model {name!r} here; there are {', '.join(bundles) or 'none'}", param="model")
        entries = dict(self.entries)
        readers = [each for each in bundles if kind_of(bundles[each]) == ENCODER]
        for each in readers if kind_of(bundles[name]) == HEAD else ():
            try:
                entries[each] = self._keep_or_load(each, bundles[each], entries)
            except BundleError as broken:
                if each not in self.refused:
                    log.warning("bundle %s refused: %s", each, broken.message)
                self.refused = {**self.refused, each: broken.message}
        entries[name] = self._keep_or_load(name, bundles[name], entries)
        self.entries = entries

    def _bundles(self) -> dict[str, Path]:
        try:
            return find_served(self.folders)
        except OSError as failure:
            # The folder itself is gone for the moment (a mount being swapped): keep what we have.
            log.warning("MODELS_DIR cannot be read: %s", failure.strerror)
            return {name: entry.folder for name, entry in self.entries.items()}

    def _keep_or_load(
        self, name: str, folder: Path, readers: Mapping[str, Entry], *, lazy: bool = False
    ) -> Entry:
        """The entry we have if the bundle and its reader are the same, otherwise a new one."""
        old = self.entries.get(name)
        files = fingerprint(folder)
        if old is not None and old.files == files and old.encoder_digest == _reader_of(old, readers):
            return old
        bundle = read_bundle(folder)  # after the fingerprint: a change in between is seen by the next refresh
        encoder_digest = _reader_of(bundle, readers)
        if old is not None and (old.version, old.encoder_digest) == (bundle.version, encoder_digest):
            return replace(old, folder=folder, files=files)
        return Entry(
            name=name,
            kind=bundle.kind,
            version=bundle.version,
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
        except Exception as failure:  # the edge of a worker loop: the other bundles are loaded
            log.warning("bundle %s cannot be loaded", bundle.name, exc_info=True)
            problem = f"{bundle.name} cannot be loaded: {type(failure).__name__}: {failure}"
            raise BundleError(problem, param=bundle.name) from failure


def _reader_of(head: Bundle | Entry, entries: Mapping[str, Entry]) -> str | None:
    """The version of the reader that a head stands on; None for what is no head."""
    if head.kind != HEAD:
        return None
    wanted = head.card["encoder"]
    for entry in entries.values():
        if entry.kind == ENCODER and entry.card["model_sha256"] == wanted["sha256"]:
            return entry.version
    which = f"{wanted['name']} ({wanted['sha256'][:12]})"
    raise BundleError(f"{head.name} needs the encoder {which}, which is not here", param="encoder")


def _shown(text: str) -> str:
    """The same as characters that every answer can hold: a folder's name need not be UTF-8."""
    return text.encode("utf-8", "replace").decode()


def with_default_model(settings: Settings) -> Settings:
    """The same settings with a default model. Settled once: a bundle that comes later changes no answer."""
    named = settings.default_model or default_model(settings.model_folders)
    return settings.model_copy(update={"default_model": named})


def fingerprint(folder: Path) -> Fingerprint:
    """Tells whether a bundle's files may have changed, without reading them."""
    try:
        found = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    except OSError as failure:
        raise BundleError(f"{folder.name} cannot be read: {failure.strerror}", param=folder.name) from None
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def bundle_fingerprints(folders: Sequence[Path]) -> Mapping[str, Fingerprint | str] | None:
    """Those of all bundles; None where a folder cannot be read at this moment."""
    found: dict[str, Fingerprint | str] = {}
    try:
        for name, folder in find_served(folders).items():
            try:
                found[name] = fingerprint(folder)
            except BundleError as broken:
                found[name] = broken.message
    except OSError:
        return None
    return found
