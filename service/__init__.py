"""hardmax, the online side: serves model bundles over HTTP. It imports neither torch nor `model_export`."""

from importlib.metadata import version

__version__ = version("hardmax")
