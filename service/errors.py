"""The errors of `hardmax.errors`, and those that stay inside the service. They contain no HTTP.

    HardmaxError
    ├── CapacityError
    │   └── Cancelled           the client left
    ├── ConfigurationError      a setting or a flag; stops the start with one line
    ├── BundleError             a model bundle that breaks its contract; names the field
    └── InferenceError          the runtime failed; the cause is for the log, never for the client

Raise where the fact is known. `service.http.problems` alone turns these into statuses.
"""

from hardmax.errors import CapacityError as CapacityError
from hardmax.errors import DeadlineExceeded as DeadlineExceeded
from hardmax.errors import Forbidden as Forbidden
from hardmax.errors import HardmaxError as HardmaxError
from hardmax.errors import InputError as InputError
from hardmax.errors import InvalidInput as InvalidInput
from hardmax.errors import MalformedInput as MalformedInput
from hardmax.errors import NotFound as NotFound
from hardmax.errors import NotReady as NotReady
from hardmax.errors import Overloaded as Overloaded
from hardmax.errors import TooLarge as TooLarge
from hardmax.errors import Unauthorized as Unauthorized
from hardmax.errors import UnsupportedMediaType as UnsupportedMediaType


def needs(what: str, package: str, extra: str) -> str:
    """Says how to install the package of an extra: from a checkout, as no index has hardmax."""
    return f"{what} needs {package}: pip install '.[{extra}]' in the checkout"


class Cancelled(CapacityError):
    """The caller left; nobody will read the answer."""


class ConfigurationError(HardmaxError):
    """A setting that cannot be used; `param` is its name."""


class BundleError(HardmaxError):
    """A model bundle that breaks its contract; `param` is the field."""


class InferenceError(HardmaxError):
    """ONNX Runtime failed on an input that we thought right."""
