"""Hardmax attention: ONNX functions of the domain `hardmax`, their definition in numpy, and torch."""
