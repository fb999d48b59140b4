"""`Client`: the blocking client of a server."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx

from hardmax.api import Api, takes_parameters_of
from hardmax.deadline import run_with_timeout
from hardmax.operations import ApiRequest, dynamics_request
from hardmax.transport import DEFAULT_URL, NDJSON, BoundedBuffer, HttpProtocol, decode_response


class Client(Api):
    """A client of one server. A context manager that closes its connections.

    Args:
        url: The address of the server.
        api_key: The API key, if the server needs one.
        timeout_s: Seconds for one request, with its retries, however slowly the server sends.
        retries: Further attempts after a 429 or 503 response, unless the request itself was its cause.
        transport: An httpx transport, for proxies and tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 75.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._protocol = HttpProtocol(url, api_key, timeout_s, retries)
        self._http = httpx.Client(timeout=self._protocol.httpx_timeout, transport=transport)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, request: ApiRequest) -> Any:
        """Send one request, with retries, and return the JSON document of its answer.

        Raises:
            HardmaxError: The request was refused, or no answer came.
        """
        http_request = self._protocol.build_request(request)
        deadline = self._protocol.deadline()
        for attempt in itertools.count():
            start_s = time.monotonic()
            with self._protocol.translate_errors():
                seconds = self._protocol.remaining_s(deadline)
                response, content = run_with_timeout(lambda: self._exchange(http_request, deadline), seconds)
            pause_s = self._protocol.pause_s(response, attempt, start_s, deadline)
            if pause_s is None:
                break
            time.sleep(pause_s)
        return decode_response(response, content)

    def _exchange(self, request: httpx.Request, deadline: float) -> tuple[httpx.Response, bytes]:
        response = self._connect(request)
        return response, self._read(response, deadline)

    def _connect(self, request: httpx.Request) -> httpx.Response:
        """Send a request; retry for CONNECT_RETRY_S if the connection is refused."""
        start_s = time.monotonic()
        while True:
            try:
                return self._http.send(request, stream=True)
            except httpx.ConnectError:
                pause_s = self._protocol.connect_pause_s(start_s)
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    @takes_parameters_of(dynamics_request)
    def stream_dynamics(self, request: ApiRequest) -> Iterator[dict[str, Any]]:
        """Run a cloud to its limits, and yield its progress as documents.

        The parameters are those of `dynamics`.

        Yields:
            The progress, every 0.1 s at most; the last document is the result.

        Raises:
            InputError: The points or an option are wrong; `param` names the field.
            CapacityError: The server is overloaded, not ready, or out of time.
            RemoteError: The server failed, or did not answer.
        """
        return self._stream(request)

    def _stream(self, request: ApiRequest) -> Iterator[dict[str, Any]]:
        with self._protocol.translate_errors():
            deadline = self._protocol.deadline()
            response = self._connect(self._protocol.build_request(request, NDJSON))
            if response.is_error:
                decode_response(response, self._read(response, deadline))
            buffer = BoundedBuffer()
            with closing(response):
                for part in itertools.chain(response.iter_bytes(), [b"\n"]):
                    self._protocol.remaining_s(deadline)
                    yield from (decode_response(response, line) for line in buffer.lines(part))

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        buffer = BoundedBuffer()
        with closing(response):
            for part in response.iter_bytes():
                self._protocol.remaining_s(deadline)
                buffer.add(part)
        return buffer.take()
