"""Hardmax attention, written once, as ONNX functions of the domain `hardmax`."""
