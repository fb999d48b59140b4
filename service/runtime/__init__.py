"""Bundles, ONNX Runtime sessions, the model registry and the batcher."""
