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
only scores are padded, and the key of padding is the null key. A score is a sum of 32 products of integers,
exact in float32, so the choice of a head does not depend on the order of the sum.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx

from model_export.attention.functions import Nodes
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
from model_export.encoder.quantized import ZERO, Array, Stored

Products = Literal["integer", "float"]
PROJECT_AND_ADD = {"integer": (Project, Add), "float": (FloatProject, FloatAdd)}
NOWHERE = 1 << 20  # the position of padding and of the null key: no distance from it is in the table
# The weights of `quantize` that have another name in the graph.
STORED_NAMES = {"positions": "of_place", "null_keys": "nobody"}


def to_onnx(weights: Stored, products: Products = "integer") -> onnx.ModelProto:
    """Return the graph with the quantized encoder in it.

    Args:
        weights: of `quantize`.
        products: of integers, as CPUs are fast at, or of float32, for which GPUs have kernels. Both give the
            same bits, and their initializers are the same.
    """
    layers = sum(name.endswith(".ask") for name in weights)
    W = weights["table"].shape[1]
    inputs = {"pieces": (np.int64, ["T"]), "places": (np.int64, ["T"]), "rows": (np.int64, ["B", "N"])}
    outputs = {
        "states": (np.uint8, ["T", W]), "words": (np.uint8, ["T", W]),
        "follows": (np.uint8, [layers, "B", "N", "N"]),
    }  # fmt: skip
    nodes = _EncoderNodes(weights, products)
    nodes.begin(layers)
    h, state = "h", "words"
    for i in range(layers):
        h, state = nodes.layer(i, h, state, next_state=f"{i}.state" if i + 1 < layers else "states")
    nodes.plain("Concat", " ".join(f"{i}.heads" for i in range(layers)), "heads", axis=0)
    nodes.call(AttentionCounts, "heads counts", "follows")
    model = nodes.model("encoder", inputs, outputs, _values(weights, layers), FUNCTIONS)
    onnx.checker.check_model(model)
    return model


class _EncoderNodes(Nodes):
    """The parts of the graph, written call by call."""

    def __init__(self, weights: Stored, products: Products) -> None:
        super().__init__()
        self._project, self._add = PROJECT_AND_ADD[products]
        self._norm = ClippedNorm if weights["clip"] else Norm
        self._has_positions = "position_bias" in weights

    def begin(self, layers: int) -> None:
        """Write the input embeddings, the keys of all layers and what is added for relative positions."""
        call, plain = self.call, self.plain
        call(InputEmbeddings, "pieces places table table_unit of_place", "begin")
        self.normalize("begin", "norm", "h")
        self.quantize("h", "word_steps", "words")
        plain("Shape", "pieces", "T")
        plain("Concat", "T four", "constants_shape", axis=0)
        plain("Expand", "constant constants_shape", "constants")
        call(WithNullKey, "rows pieces", "key_rows counts tokens")
        call(self._project, "words constants keys keys_unit zero", "all_keys")
        call(Keys, "all_keys key_rows nobody split_keys same", "layer_keys")
        plain("Split", "layer_keys", " ".join(f"{i}.keys" for i in range(layers)), axis=0, num_outputs=layers)
        if self._has_positions:
            call(PositionScores, "places key_rows position_bias nowhere", "all_bias")
            parts = " ".join(f"{i}.bias" for i in range(layers))
            plain("Split", "all_bias", parts, axis=1, num_outputs=layers)

    def layer(self, i: int, h: str, state: str, next_state: str) -> tuple[str, str]:
        """Write layer i; return the names of its h and of its quantized state."""
        call = self.call
        bias = f"{i}.bias" if self._has_positions else "no_bias"
        call(self._project, f"{state} constants {i}.ask {i}.ask_unit zero", f"{i}.projected")
        heads = f"{i}.projected {i}.keys {bias} key_rows counts tokens split_asked nothing flat"
        call(HardmaxHeads, heads, f"{i}.read {i}.heads")
        call(self._add, f"{h} {i}.read zero {i}.out {i}.out_unit {i}.out_bias", f"{i}.sum")
        self.normalize(f"{i}.sum", f"{i}.norm1", f"{i}.h")
        self.quantize(f"{i}.h", f"{i}.middle_steps", f"{i}.middle")
        inputs = f"{i}.middle constants {i}.up {i}.up_unit none"  # clipped at 0: a relu
        call(self._project, inputs, f"{i}.wide")
        call(self._add, f"{i}.h {i}.wide none {i}.down {i}.down_unit {i}.down_bias", f"{i}.end")
        self.normalize(f"{i}.end", f"{i}.norm2", f"{i}.last")
        self.quantize(f"{i}.last", f"{i}.state_steps", next_state)
        return f"{i}.last", next_state

    def quantize(self, source: str, by: str, output: str) -> None:
        self.plain("Mul", f"{source} {by}", f"{output}_exact")
        self.call(Steps, f"{output}_exact", output)

    def normalize(self, source: str, of: str, output: str) -> None:
        self.call(self._norm, f"{source} {of}.gain {of}.shift width limit", output)


def _values(weights: Stored, layers: int) -> dict[str, Array]:
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
        "nowhere": np.array([NOWHERE], np.int64),
    }
    if "position_bias" not in weights:
        values["no_bias"] = np.array(0, np.float32)
    return values
