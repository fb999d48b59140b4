"""Expand compressed request bodies as they arrive, up to a limit."""

import zlib

from service.errors import MalformedInput, TooLarge

ENCODINGS = (b"gzip", b"deflate")
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class BodyDecompressor:
    """Expand a body in gzip or deflate."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._remaining = max_bytes
        self._inflate = zlib.decompressobj(GZIP_OR_ZLIB)

    def expand(self, compressed: bytes, *, is_last: bool) -> bytes:
        """Return the expanded part of a body.

        Raises:
            MalformedInput: It is not compressed as declared, or does not end with its last part.
            TooLarge: The expanded body is over the limit, beyond which nothing is expanded.
        """
        try:
            body = self._inflate.decompress(compressed, self._remaining + 1)
        except zlib.error:
            raise MalformedInput("the body is not compressed as Content-Encoding says") from None
        self._remaining -= len(body)
        if self._remaining < 0:
            limit = f"the limit of {self._max_bytes / 1e6:g} MB (PAYLOAD_LIMIT_MB)"
            raise TooLarge(f"the expanded body is over {limit}")
        if self._inflate.unused_data or (is_last and not self._inflate.eof):
            raise MalformedInput("the compressed body does not end where the request does")
        return body
