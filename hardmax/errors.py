"""What can go wrong, as one small tree: the service raises it, the client gives it back by the same names.

    HardmaxError
    ├── InputError              the request is at fault
    │   ├── MalformedInput          it cannot be read at all
    │   ├── InvalidInput            it can be read, but means nothing we can answer
    │   ├── TooLarge                it is over a limit; the message names the limit
    │   ├── NotFound                a model or feature that is not here
    │   ├── Unauthorized            no key, or not one of ours
    │   ├── Forbidden               a page of another site asks through a visitor's browser
    │   └── UnsupportedMediaType    a body of a type that is not read here
    ├── CapacityError           the request is fine, the moment is not
    │   ├── Overloaded              the queue is full; `retry_after_s` says when to come back
    │   ├── NotReady                starting, draining, or the inference thread is dead
    │   └── DeadlineExceeded        it took longer than the request may
    └── RemoteError             a server failed otherwise: `status` and `type` say how
        ├── ConnectionFailed        no answer at all
        └── UnexpectedAnswer        an answer that is not one of hardmax

`service.errors` adds what a caller never meets.
"""

from __future__ import annotations

import re

__all__ = [
    "CapacityError", "ConnectionFailed", "DeadlineExceeded", "Forbidden", "HardmaxError", "InputError",
    "InvalidInput", "MalformedInput", "NotFound", "NotReady", "Overloaded", "RemoteError", "TooLarge",
    "Unauthorized", "UnexpectedAnswer", "UnsupportedMediaType",
]  # fmt: skip


class HardmaxError(Exception):
    """A failure with a sentence for people and, where one place is at fault, the name of that place.

    From a server it also has the `status` of the answer and the `request_id` by which its log knows it.
    """

    status: int | None = None
    request_id: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    @property
    def index(self) -> int | None:
        """Which of many texts, sequences or points is at fault: 7 where `param` is input[7]."""
        place = re.search(r"\[(\d{1,15})\]", self.param or "")
        return int(place[1]) if place else None

    def shift_index(self, first: int) -> None:
        """Only the part of a long list from `first` on was looked at: name the entry in the whole list."""
        if self.index is not None:
            self.param = place = str(self.param).replace(f"[{self.index}]", f"[{first + self.index}]", 1)
            self.message = f"{place}: {self.message.removeprefix(f'{place}: ')}"
            self.args = (self.message,)


class InputError(HardmaxError):
    """The request is at fault."""


class MalformedInput(InputError):
    """Not JSON, not npy, not UTF-8."""


class InvalidInput(InputError):
    """Well-formed but wrong: NaN, ragged, not positive definite, empty text."""


class TooLarge(InputError):
    """Over a limit, which the message names."""


class NotFound(InputError):
    """A model, route or optional feature that is not here."""


class Unauthorized(InputError):
    """No API key, or not one of ours."""


class Forbidden(InputError):
    """A page of another site asks through a visitor's browser."""


class UnsupportedMediaType(InputError):
    """A body of a media type this route does not read."""


class CapacityError(HardmaxError):
    """The request is fine, the moment is not."""


class Overloaded(CapacityError):
    """Accepting this would make everybody wait too long."""

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class NotReady(CapacityError):
    """Starting, draining, or unable to infer."""


class DeadlineExceeded(CapacityError):
    """The request's time is over."""


class RemoteError(HardmaxError):
    """A server failed, or a proxy before it did; `type` is the server's own word for it."""

    type = "http_error"


class ConnectionFailed(RemoteError):
    """No answer at all: nobody listens there, or the connection broke."""


class UnexpectedAnswer(RemoteError):
    """The answer is not one of hardmax: a page of a proxy, another service, or too few entries."""
