"""The encoder as an ONNX graph: from the tokens of chunks to hidden states and attention counts.

    input    pieces   int64 [T]          token_ids of all chunks, one after the other
             places   int64 [T]          position_ids: the position of each token in its chunk
             rows     int64 [B, N]       the row of each token of each chunk: 0..T-1, in order; T for padding
    outputs  states   uint8 [T, W]       hidden states of the last layer; 128 is zero
             words    uint8 [T, W]       input embeddings
             follows  uint8 [L, B, N, N] attention_counts: by how many heads token i attends to token j

Inputs, outputs and weights have the names of the released models, which the service and `hardmax-export
verify` read: "pieces" are tokens, "places" are positions, and "nobody" is the null key (STORED_NAMES).

The symbols are those of model.py, the numbers those of quantized.py. Linear maps get rows without padding;
only scores are padded, and the key of padding is the null key. A score is a sum of 32 or 64 products of
integers, exact in float32, so the choice of a head does not depend on the order of the sum.
"""

from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper

from model_export.attention.functions import GraphBuilder
from model_export.encoder.functions import (
    FUNCTIONS,
    Add,
    AttentionCounts,
    ClippedNorm,
    FloatAdd,
    FloatProject,
    HardmaxHeads,
    InputEmbeddings,
    Keys,
    Norm,
    PositionScores,
    Project,
    Steps,
    WithNullKey,
)
from model_export.encoder.layer import BIAS_CHANNELS
from model_export.encoder.quantized import ZERO, Array, Weights

Products = Literal["integer", "float"]
PROJECT_AND_ADD = {"integer": (Project, Add), "float": (FloatProject, FloatAdd)}
NO_POSITION = 1 << 20  # the position of padding and of the null key, which no distance in the table reaches
# The weights of `quantize` that have another name in the graph.
STORED_NAMES = {"positions": "of_place", "null_keys": "nobody"}


def to_onnx(weights: Weights, products: Products = "integer") -> onnx.ModelProto:
    """Return the graph with the quantized encoder in it.

    Args:
        weights: the result of `quantize`.
        products: of integers, which CPUs multiply fast, or of float32, for which GPUs have kernels. Both
            graphs give the same bits and have the same initializers.
    """
    layers = sum(name.endswith(".ask") for name in weights)
    W = weights["table"].shape[1]
    inputs = {"pieces": (np.int64, ["T"]), "places": (np.int64, ["T"]), "rows": (np.int64, ["B", "N"])}
    outputs = {
        "states": (np.uint8, ["T", W]), "words": (np.uint8, ["T", W]),
        "follows": (np.uint8, [layers, "B", "N", "N"]),
    }  # fmt: skip
    graph = _EncoderGraphBuilder(weights, products)
    graph.add_embeddings(layers)
    h, state = "h", "words"
    for i in range(layers):
        h, state = graph.add_layer(i, h, state, next_state=f"{i}.state" if i + 1 < layers else "states")
    graph.add_node("Concat", " ".join(f"{i}.heads" for i in range(layers)), "heads", axis=0)
    graph.add_call(AttentionCounts, "heads counts", "follows")
    model = graph.to_model("encoder", inputs, outputs, _values(weights, layers), FUNCTIONS)
    onnx.checker.check_model(model)
    return model


def read_weights(model: bytes) -> Weights:
    """Return the weights from which `to_onnx` made a graph; graphs of 0.3 do not contain `limit`."""
    graph = onnx.load_from_string(model).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    null_keys = (stored["nobody"].astype(np.int16) - ZERO).astype(np.int8)
    return {
        "limit": np.float32(200), "clip": any(node.op_type == "ClippedNorm" for node in graph.node), **stored,
        "positions": stored["of_place"], "null_keys": null_keys, "heads": stored["split_keys"][3],
    }  # fmt: skip


class _EncoderGraphBuilder(GraphBuilder):
    """Builds the parts of the graph."""

    def __init__(self, weights: Weights, products: Products) -> None:
        super().__init__()
        self._project, self._add = PROJECT_AND_ADD[products]
        self._norm = ClippedNorm if weights["clip"] else Norm
        self._has_positions = "position_bias" in weights

    def add_embeddings(self, layers: int) -> None:
        """Add the input embeddings, and the keys and the position scores of all layers."""
        call, node = self.add_call, self.add_node
        call(InputEmbeddings, "pieces places table table_unit of_place", "begin")
        self.add_norm("begin", "norm", "h")
        self.add_rounding("h", "word_steps", "words")
        node("Shape", "pieces", "T")
        node("Concat", "T four", "constants_shape", axis=0)
        node("Expand", "constant constants_shape", "constants")
        call(WithNullKey, "rows pieces", "key_rows counts tokens")
        call(self._project, "words constants keys keys_unit zero", "all_keys")
        call(Keys, "all_keys key_rows nobody split_keys same", "layer_keys")
        node("Split", "layer_keys", " ".join(f"{i}.keys" for i in range(layers)), axis=0, num_outputs=layers)
        if self._has_positions:
            call(PositionScores, "places key_rows position_bias nowhere", "all_bias")
            parts = " ".join(f"{i}.bias" for i in range(layers))
            node("Split", "all_bias", parts, axis=1, num_outputs=layers)

    def add_layer(self, i: int, h: str, state: str, next_state: str) -> tuple[str, str]:
        """Add layer i; return the names of its h and of its quantized state."""
        call = self.add_call
        bias = f"{i}.bias" if self._has_positions else "no_bias"
        call(self._project, f"{state} constants {i}.ask {i}.ask_unit zero", f"{i}.projected")
        heads = f"{i}.projected {i}.keys {bias} key_rows counts tokens split_asked nothing flat"
        call(HardmaxHeads, heads, f"{i}.read {i}.heads")
        call(self._add, f"{h} {i}.read zero {i}.out {i}.out_unit {i}.out_bias", f"{i}.sum")
        self.add_norm(f"{i}.sum", f"{i}.norm1", f"{i}.h")
        self.add_rounding(f"{i}.h", f"{i}.middle_steps", f"{i}.middle")
        inputs = f"{i}.middle constants {i}.up {i}.up_unit none"  # clipped at 0: a relu
        call(self._project, inputs, f"{i}.wide")
        call(self._add, f"{i}.h {i}.wide none {i}.down {i}.down_unit {i}.down_bias", f"{i}.end")
        self.add_norm(f"{i}.end", f"{i}.norm2", f"{i}.last")
        self.add_rounding(f"{i}.last", f"{i}.state_steps", next_state)
        return f"{i}.last", next_state

    def add_rounding(self, source: str, factor: str, output: str) -> None:
        """Multiply by a factor and round to uint8."""
        self.add_node("Mul", f"{source} {factor}", f"{output}_exact")
        self.add_call(Steps, f"{output}_exact", output)

    def add_norm(self, source: str, norm: str, output: str) -> None:
        """Normalize with the parameters of a norm."""
        self.add_call(self._norm, f"{source} {norm}.gain {norm}.shift width limit", output)


def _values(weights: Weights, layers: int) -> dict[str, Array]:
    """Return the initializers: the weights by their stored names, and the constants of the functions."""
    W, H = weights["table"].shape[1], int(weights["heads"])
    null_keys = (weights["null_keys"].astype(np.int16) + ZERO).astype(np.uint8)
    stored = {**weights, "null_keys": null_keys}
    values = {
        STORED_NAMES.get(name, name): value for name, value in stored.items() if name not in ("heads", "clip")
    } | {
        "nothing": np.full((1, 2 * W), ZERO, np.uint8),
        "zero": np.array(ZERO, np.uint8),
        "none": np.array(0, np.uint8),
        "four": np.array([len(BIAS_CHANNELS)], np.int64),
        "constant": np.array([BIAS_CHANNELS], np.float32).astype(np.uint8) + np.uint8(ZERO),
        "split_keys": np.array([0, 0, layers, H, W // H], np.int64),
        "split_asked": np.array([0, 0, 2, H, W // H], np.int64),
        "same": np.array([0, 0, H, -1, W // H], np.int64),
        "flat": np.array([-1, W], np.int64),
        "width": np.array(W, np.float32),
        "nowhere": np.array([NO_POSITION], np.int64),
    }
    if "position_bias" not in weights:
        values["no_bias"] = np.array(0, np.float32)
    return values
