"""hardmax, the online side: serves model bundles over HTTP. It imports neither torch nor `model_export`."""

from hardmax import __version__

__all__ = ["__version__"]  # client and service are released together
