"""hardmax, the public face: clients, the model in this process, and the application.

from hardmax import AsyncClient, Client, Local, create_app
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service import __version__

if TYPE_CHECKING:
    from service.app import create_app
    from service.client.local import Local
    from service.client.remote import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Local", "__version__", "create_app"]

_PLACES = {
    "AsyncClient": "service.client.remote",
    "Client": "service.client.remote",
    "Local": "service.client.local",
    "create_app": "service.app",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: a client needs neither the server nor ONNX Runtime."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module 'hardmax' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
