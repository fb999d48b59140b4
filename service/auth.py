"""Read and compare API keys; `http/dependencies.py` takes them from requests.

A key may be written `name:key`. The access log has the name of the key of each request.
"""

import hashlib
import hmac
import re
from pathlib import Path

from service.errors import ConfigurationError, Unauthorized

match_named = re.compile(r"([A-Za-z0-9_.-]{1,64}):(.+)").fullmatch


class ApiKeys:
    """The keys of API_KEYS and API_KEYS_FILE, stored as digests. Without keys, the service is open."""

    def __init__(self, inline: str, file: Path | None) -> None:
        self._inline = [key for part in inline.split(",") if (key := part.strip())]
        self._file = file
        self._names: dict[bytes, str] = {}  # by the digest of the key; "" for a key without a name
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
        named = [match.groups() if (match := match_named(key)) else ("", key) for key in keys]
        self._names = {_digest_as_sent(key.strip()): name for name, key in named}
        self.required = bool(keys)

    def __len__(self) -> int:
        return len(self._names)

    def check(self, *keys: bytes) -> str:
        """Return the name of the key; raise unless one of these keys may call.

        It takes the same time for every wrong key.
        """
        if not keys:
            header = "send the header Authorization: Bearer KEY, or X-API-Key: KEY"
            raise Unauthorized(f"an API key is needed: {header}")
        digests = [hashlib.sha256(key).digest() for key in keys]
        names = self._names
        matches = [known for digest in digests for known in names if hmac.compare_digest(digest, known)]
        if not matches:
            raise Unauthorized("this API key is not one of those that may call")
        return names[matches[0]]


def _digest_as_sent(key: str) -> bytes:
    """Return the digest of a key as it arrives in a header.

    subtle: headers are decoded as Latin-1 and stripped, which also cuts the last byte of some letters.
    """
    return hashlib.sha256(key.encode().decode("latin-1").strip().encode("latin-1")).digest()
