"""What all models share: bundles, ONNX Runtime, the registry, batches and the queue of clouds."""
