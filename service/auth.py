"""Read and compare API keys; `http/dependencies.py` takes them from requests."""

import hashlib
import hmac
from pathlib import Path

from service.errors import ConfigurationError, Unauthorized


class ApiKeys:
    """The keys of API_KEYS and API_KEYS_FILE, stored as digests. Without keys, the service is open."""

    def __init__(self, inline: str, file: Path | None) -> None:
        self._inline = [key for part in inline.split(",") if (key := part.strip())]
        self._file = file
        self._digests: tuple[bytes, ...] = ()
        self.reload()

    def reload(self) -> None:
        """Read the file again. If it cannot be read, the keys stay and an error is raised."""
        keys = list(self._inline)
        if self._file is not None:
            try:
                lines = self._file.read_text("utf-8-sig").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{self._file} cannot be read", param="API_KEYS_FILE") from error
            keys += [key for line in lines if (key := line.strip()) and not key.startswith("#")]
            if not keys:
                raise ConfigurationError(f"{self._file} holds no key", param="API_KEYS_FILE")
        # subtle: headers are decoded as Latin-1 and stripped, which also cuts the last byte of some letters
        sent = (key.encode().decode("latin-1").strip().encode("latin-1") for key in keys)
        self._digests = tuple(hashlib.sha256(key).digest() for key in sent)
        self.required = bool(keys)

    def __len__(self) -> int:
        return len(self._digests)

    def check(self, *keys: bytes) -> None:
        """Raise unless one of these keys may call. It takes the same time for every wrong key."""
        if not keys:
            header = "send the header Authorization: Bearer KEY, or X-API-Key: KEY"
            raise Unauthorized(f"an API key is needed: {header}")
        digests = [hashlib.sha256(key).digest() for key in keys]
        matches = [hmac.compare_digest(digest, known) for digest in digests for known in self._digests]
        if not any(matches):
            raise Unauthorized("this API key is not one of those that may call")
