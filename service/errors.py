"""The errors of `hardmax.errors`, and those that stay inside the service. They contain no HTTP.

    HardmaxError
    ├── CapacityError
    │   └── Cancelled           the client left
    ├── ConfigurationError      an unusable setting or flag; ends the start with one line
    ├── BundleError             a model bundle that breaks its contract; names the field
    └── InferenceError          the runtime failed; the cause is logged, never sent to the client

Only `service.http.errors` turns these into statuses.
"""

from hardmax.errors import *  # noqa: F403
from hardmax.errors import CapacityError, HardmaxError


def needs(feature: str, package: str, extra: str) -> str:
    """Return how to install the package of an extra: from a checkout, because no index has hardmax."""
    return f"{feature} needs {package}: pip install '.[{extra}]' in the checkout"


class Cancelled(CapacityError):
    """The caller has disconnected."""


class ConfigurationError(HardmaxError):
    """A setting that cannot be used; `param` is its name."""


class BundleError(HardmaxError):
    """A model bundle that breaks its contract; `param` is the field."""


class InferenceError(HardmaxError):
    """ONNX Runtime failed on an input that was checked."""
