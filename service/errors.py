"""The errors of `hardmax.errors`, and those that stay inside the service. They contain no HTTP.

    HardmaxError
    ├── CapacityError
    │   └── Cancelled           the client left
    ├── ConfigurationError      a setting or a flag; stops the start with one line
    ├── BundleError             a model bundle that breaks its contract; names the field
    └── InferenceError          the runtime failed; the cause is for the log, never for the client

Raise where the fact is known. `service.http.errors` alone turns these into statuses.
"""

from hardmax.errors import *  # noqa: F403
from hardmax.errors import CapacityError, HardmaxError


def needs(what: str, package: str, extra: str) -> str:
    """Says how to install the package of an extra: from a checkout, as no index has hardmax."""
    return f"{what} needs {package}: pip install '.[{extra}]' in the checkout"


class Cancelled(CapacityError):
    """The caller has disconnected."""


class ConfigurationError(HardmaxError):
    """A setting that cannot be used; `param` is its name."""


class BundleError(HardmaxError):
    """A model bundle that breaks its contract; `param` is the field."""


class InferenceError(HardmaxError):
    """ONNX Runtime failed on an input that we thought right."""
