"""The domain `hardmax`, under which every exported graph shows its functions by name.

Its functions use standard operators alone. They stand where they are used: screen.py, ../sentiment, ../exact.
"""

from onnxscript.values import Opset

DOMAIN = "hardmax"
VERSION = 1
OPSET = 20

domain = Opset(DOMAIN, VERSION)
