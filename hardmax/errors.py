"""The errors of the service and of its clients, as one tree::

    HardmaxError
    ├── InputError              the request is wrong
    │   ├── MalformedInput          it cannot be parsed
    │   ├── InvalidInput            it can be parsed, but has no meaning
    │   ├── TooLarge                it exceeds a limit; the message names the limit
    │   ├── NotFound                a model or feature that does not exist
    │   ├── Unauthorized            no API key, or a wrong one
    │   ├── Forbidden               a page of another site sends it through a browser
    │   └── UnsupportedMediaType    a body of a type that the route does not read
    ├── CapacityError           the request is right, but the server cannot answer now
    │   ├── Overloaded              the queue is full; `retry_after_s` says when to try again
    │   ├── NotReady                starting, draining, or unable to infer
    │   └── DeadlineExceeded        it takes longer than a request may
    └── RemoteError             the server failed otherwise; see `status` and `type`
        ├── ConnectionFailed        no answer
        └── UnexpectedAnswer        an answer that is not one of hardmax

`service.errors` adds the errors that a client never receives.
"""

from __future__ import annotations

import re

__all__ = [
    "CapacityError", "ConnectionFailed", "DeadlineExceeded", "Forbidden", "HardmaxError", "InputError",
    "InvalidInput", "MalformedInput", "NotFound", "NotReady", "Overloaded", "RemoteError", "TooLarge",
    "Unauthorized", "UnexpectedAnswer", "UnsupportedMediaType",
]  # fmt: skip


class HardmaxError(Exception):
    """A failure with a message and, if one field is wrong, its name in `param`.

    From a server it also has the `status` of the response and the `request_id` in the server's log.
    """

    status: int | None = None
    request_id: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    @property
    def index(self) -> int | None:
        """The number of the text, sequence or point that is wrong: 7 if `param` is input[7]."""
        match = re.search(r"\[(\d{1,15})\]", self.param or "")
        return int(match[1]) if match else None

    def shift_index(self, first: int) -> None:
        """Add `first` to the index: the list that was sent is part of a longer one and begins there."""
        if self.index is not None:
            sent = str(self.param)
            self.param = param = sent.replace(f"[{self.index}]", f"[{first + self.index}]", 1)
            names_it = self.message.startswith(sent)
            self.message = param + self.message[len(sent) :] if names_it else f"{param}: {self.message}"
            self.args = (self.message,)


class InputError(HardmaxError):
    """The request is wrong."""


class MalformedInput(InputError):
    """The request is not JSON, not npy or not UTF-8."""


class InvalidInput(InputError):
    """The request has no meaning: NaN, ragged rows, a matrix that is not positive definite, an empty text."""


class TooLarge(InputError):
    """The request exceeds a limit, which the message names."""


class NotFound(InputError):
    """A model, route or optional feature does not exist."""


class Unauthorized(InputError):
    """There is no API key, or a wrong one."""


class Forbidden(InputError):
    """A page of another site sends the request through a browser."""


class UnsupportedMediaType(InputError):
    """The body has a media type that the route does not read."""


class CapacityError(HardmaxError):
    """The request is right, but the server cannot answer now."""


class Overloaded(CapacityError):
    """The queue is full. `retry_after_s` says when to try again."""

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class NotReady(CapacityError):
    """The server is starting, draining, or unable to infer."""


class DeadlineExceeded(CapacityError):
    """The request takes longer than it may."""


class RemoteError(HardmaxError):
    """The server or a proxy failed; `type` is the server's name for it."""

    type = "http_error"


class ConnectionFailed(RemoteError):
    """There is no answer: no server listens, the connection broke, or the timeout passed."""


class UnexpectedAnswer(RemoteError):
    """The answer is not one of hardmax: of a proxy or another service, or with too few entries."""
