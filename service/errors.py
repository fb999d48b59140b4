"""Everything that can go wrong, as one small tree. It contains no HTTP.

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
    │   ├── DeadlineExceeded        it took longer than the request may
    │   └── Cancelled               the client left
    ├── ConfigurationError      a setting or a flag; stops the start with one line
    ├── BundleError             a model bundle that breaks its contract; names the field
    └── InferenceError          the runtime failed; the cause is for the log, never for the client

Raise where the fact is known. `service.http.problems` alone turns these into statuses.
"""

from __future__ import annotations

import re


class HardmaxError(Exception):
    """A failure with a sentence for people and, where one place is at fault, the name of that place."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    @property
    def index(self) -> int | None:
        """Which of many texts, sequences or points is at fault: 7 where `param` is input[7]."""
        place = re.search(r"\[(\d+)\]", self.param or "")
        return int(place[1]) if place else None

    def count_from(self, first: int) -> None:
        """Say which entry of a long list is at fault, of which only a part from `first` on was looked at."""
        if self.index is not None:
            self.param = place = str(self.param).replace(f"[{self.index}]", f"[{first + self.index}]", 1)
            self.message = f"{place}: {self.message.removeprefix(f'{place}: ')}"
            self.args = (self.message,)


def needs(what: str, package: str, extra: str) -> str:
    """Says how to install the package of an extra: from a checkout, as no index has hardmax."""
    return f"{what} needs {package}: pip install '.[{extra}]' in the checkout"


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

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotReady(CapacityError):
    """Starting, draining, or unable to infer."""


class DeadlineExceeded(CapacityError):
    """The request's time is over."""


class Cancelled(CapacityError):
    """The caller left; nobody will read the answer."""


class ConfigurationError(HardmaxError):
    """A setting that cannot be used; `param` is its name."""


class BundleError(HardmaxError):
    """A model bundle that breaks its contract; `param` is the field."""


class InferenceError(HardmaxError):
    """ONNX Runtime failed on an input that we thought right."""
