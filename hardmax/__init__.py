"""hardmax: clients of the service and, where the package hardmax-service is installed, the service itself.

from hardmax import AsyncClient, Client                 over HTTP
from hardmax import Local, create_app                   in this process
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hardmax import errors
from hardmax.errors import *  # noqa: F403

if TYPE_CHECKING:
    from hardmax.answers import Answer, Answers, CloudRun
    from hardmax.api import Api
    from hardmax.async_client import AsyncClient
    from hardmax.client import Client

    # subtle: declared here, because the service that defines them need not be installed.
    class Local(Api):
        """Every operation of `Client`, answered in this process."""

        def __init__(
            self, settings: Any = None, *, on_progress: Callable[[str], None] = ..., **flags: Any
        ) -> None: ...
        def send(self, request: Any) -> Any: ...
        def close(self) -> None: ...

    def create_app(settings: Any, *, loaders: Any = None) -> Any:
        """Return the FastAPI application."""


__all__ = ["Answer", "Answers", "AsyncClient", "Client", "CloudRun", "__version__"]
__all__ += errors.__all__

try:
    __version__ = version("hardmax-service")  # which contains this package
    __all__ += ["Local", "create_app"]
except PackageNotFoundError:
    __version__ = version("hardmax")

_SERVICE_NAMES = {"Local": "service.local", "create_app": "service.app"}
_CLIENT_NAMES = {"AsyncClient": "hardmax.async_client", "Client": "hardmax.client"}
_CLIENT_NAMES |= dict.fromkeys(["Answer", "Answers", "CloudRun"], "hardmax.answers")


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the service needs only the errors."""
    module = (_SERVICE_NAMES | _CLIENT_NAMES).get(name)
    if module is None:
        raise AttributeError(f"module 'hardmax' has no attribute {name!r}")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if name not in _SERVICE_NAMES:
            raise
        needed, problem = error.name, "which is not installed"
        if str(error.name).startswith("service"):
            needed, other = "the package hardmax-service", find_spec("service")
            if other is not None:  # a folder of this name in the program's own project
                problem += f" or is hidden by the package {list(other.submodule_search_locations or [])}"
        message = f"hardmax.{name} needs {needed}, {problem}"
        raise ModuleNotFoundError(message, name=error.name) from None


def __dir__() -> list[str]:
    return __all__
