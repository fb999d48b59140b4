"""The models being served, by name: loaded from bundles, replaced and removed while requests run.

Readers take a snapshot and never wait. A refresh builds the next snapshot beside it and swaps it in whole:
who began with a model keeps it. A bundle that is broken, or that cannot be loaded, is refused with its
reason and what was served under its name stays. Knows bundles, not what models do: a loader for each kind
is given to it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.bundle import Bundle, list_bundles, read_bundle
from service.errors import BundleError, NotFound

log = logging.getLogger(__name__)

Loader = Callable[[Bundle], Any]
Fingerprint = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class Entry:
    """A model that is served. The bundle's bytes are let go once it is loaded."""

    name: str
    kind: str
    version: str
    card: Mapping[str, Any]
    model: Any
    loaded_at: datetime
    files: Fingerprint


class Registry:
    def __init__(self, models_dir: Path, loaders: Mapping[str, Loader]) -> None:
        self.models_dir = models_dir
        self.loaders = loaders
        self._entries: Mapping[str, Entry] = MappingProxyType({})
        self._refused: Mapping[str, str] = MappingProxyType({})
        self._refreshing = threading.Lock()

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    @property
    def refused(self) -> Mapping[str, str]:
        """Names of bundles that could not be loaded, and why."""
        return self._refused

    def find(self, name: str, kind: str) -> Any:
        """The model of that name, which must be of that kind."""
        entry = self._entries.get(name)
        if entry is None or entry.kind != kind:
            have = ", ".join(each.name for each in self._entries.values() if each.kind == kind)
            problem = f"no model of kind {kind} has this name; there {'are: ' + have if have else 'is none'}"
            raise NotFound(problem, param="model")
        return entry.model

    def load(self) -> None:
        """Load everything; the first broken bundle is raised. For the start, where a mistake must be seen."""
        with self._refreshing:
            entries = {folder.name: self._load(folder) for folder in list_bundles(self.models_dir)}
            self._entries = MappingProxyType(entries)

    def refresh(self) -> bool:
        """Bring the models in step with MODELS_DIR; whether anything changed. Slow: for a thread."""
        with self._refreshing:
            entries: dict[str, Entry] = {}
            refused: dict[str, str] = {}
            for folder in self._folders():
                name = folder.name
                try:
                    entries[name] = self._keep_or_load(folder)
                except BundleError as broken:
                    refused[name] = broken.message
                    if name in self._entries:
                        entries[name] = self._entries[name]
                    if self._refused.get(name) != broken.message:
                        log.warning("bundle %s refused: %s", name, broken.message)
            changed = self._tell(entries) or refused != self._refused
            self._entries, self._refused = MappingProxyType(entries), MappingProxyType(refused)
            return changed

    def _folders(self) -> list[Path]:
        try:
            return list(list_bundles(self.models_dir))
        except OSError as failure:
            # The folder itself is gone for the moment (a mount being swapped): keep what we have.
            log.warning("MODELS_DIR cannot be read: %s", failure.strerror)
            return [self.models_dir / name for name in self._entries]

    def _keep_or_load(self, folder: Path) -> Entry:
        """The entry we have if the bundle is the same, otherwise a new one."""
        old = self._entries.get(folder.name)
        files = fingerprint(folder)
        if old is not None and old.files == files:
            return old
        new = self._load(folder, known=old)
        return new

    def _load(self, folder: Path, known: Entry | None = None) -> Entry:
        files = fingerprint(folder)  # before reading: a change in between is seen by the next refresh
        bundle = read_bundle(folder)
        if known is not None and known.version == bundle.version:
            return replace(known, files=files)
        return Entry(
            name=bundle.name,
            kind=bundle.kind,
            version=bundle.version,
            card=bundle.card,
            model=self.loaders[bundle.kind](bundle),
            loaded_at=datetime.now(UTC),
            files=files,
        )

    def _tell(self, entries: Mapping[str, Entry]) -> bool:
        """Log what a refresh changes; whether that is anything."""
        old = {name: entry.version for name, entry in self._entries.items()}
        new = {name: entry.version for name, entry in entries.items()}
        for name in sorted(old.keys() | new.keys()):
            if name not in new:
                log.info("model %s removed", name)
            elif name not in old:
                log.info("model %s added", name)
            elif old[name] != new[name]:
                log.info("model %s replaced", name)
        return old != new


def fingerprint(folder: Path) -> Fingerprint:
    """Tells whether a bundle's files may have changed, without reading them."""
    try:
        found = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    except OSError as failure:
        raise BundleError(f"{folder.name} cannot be read: {failure.strerror}", param=folder.name) from None
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found)
