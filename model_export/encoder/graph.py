"""The encoder as an ONNX graph: from the tokens of chunks to hidden states and attention counts.

    input    token_ids     int64 [T]          the tokens of all chunks, one after the other
             position_ids  int64 [T]          the position of each token in its chunk
             rows          int64 [B, N]       the row of each token of each chunk: 0..T-1; T for padding
             token_rows    int64 [T]          where each token is among the B N of `rows`
    outputs  states        uint8 [T, W]       hidden states of the last layer; 128 is zero
             words         uint8 [T, W]       input embeddings
             attends_to    uint8 [L, B, N, N] attention_counts: by how many heads token i attends to token j

The symbols are those of model.py, the numbers those of quantization.py. Linear maps get rows without padding;
only scores are padded, by a score that is in no argmax. A score is a sum of products of integers, exact in
float32, so the choice of a head does not depend on the order of the sum.
"""

from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper

from model_export.attention.functions import GraphBuilder
from model_export.encoder import functions as f
from model_export.encoder.layer import BIAS_CHANNELS
from model_export.encoder.quantization import ZERO, Array, Weights

Products = Literal["integer", "float"]
NO_POSITION = 1 << 20  # the position of padding and of the null key, which no distance in the table reaches
NEVER = -(2.0**23)  # added to the score of padding: less than any score, and exact in float32
# the weights outside of layers and norms
WEIGHTS = frozenset(
    "table table_unit positions word_steps null_key limit position_bias keys keys_unit".split()
)


def to_onnx(weights: Weights, products: Products = "integer") -> onnx.ModelProto:
    """Return the graph with the quantized encoder in it.

    Args:
        weights: the result of `quantize`.
        products: of integers, which CPUs multiply fast, or of float32, for which GPUs have kernels. Both
            graphs give the same bits, and store the same weights.
    """
    layers = sum(name.endswith(".up") for name in weights)
    W = weights["table"].shape[1]
    inputs = {
        "token_ids": (np.int64, ["T"]), "position_ids": (np.int64, ["T"]),
        "rows": (np.int64, ["B", "N"]), "token_rows": (np.int64, ["T"]),
    }  # fmt: skip
    outputs = {
        "states": (np.uint8, ["T", W]), "words": (np.uint8, ["T", W]),
        "attends_to": (np.uint8, [layers, "B", "N", "N"]),
    }  # fmt: skip
    graph = _EncoderGraphBuilder(weights, products)
    graph.add_embeddings(layers)
    h, state = "h", "words.codes"
    for i in range(layers):
        h, state = graph.add_layer(i, h, state)
    graph.add_output(state, "states")
    graph.add_node("Concat", _each(layers, "attended"), "attended", axis=0)
    graph.add_call(f.AttentionCounts, "attended rows token_ids", "attends_to")
    functions = (*f.COMMON, *(f.INTEGER if products == "integer" else (f.Steps, *f.FLOAT)))
    model = graph.to_model("encoder", inputs, outputs, _values(weights, layers, products), functions)
    onnx.checker.check_model(model)
    return model


def read_weights(model: bytes) -> dict[str, Array]:
    """Return the weights from which `to_onnx` made a graph."""
    graph = onnx.load_from_string(model).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {name: value for name, value in stored.items() if "." in name or name in WEIGHTS}
    heads = len(stored["heads"])
    clip = any(node.op_type in ("ClippedUnits", "ClippedNorm") for node in graph.node)
    return {**weights, "clip": np.array(clip), "heads": np.array(heads)}


class _EncoderGraphBuilder(GraphBuilder):
    """Builds the parts of the graph."""

    def __init__(self, weights: Weights, products: Products) -> None:
        super().__init__()
        self._is_integer = products == "integer"
        parts = f.INTEGER if self._is_integer else f.FLOAT
        self._steps, self._numbers, self._project, self._add, self._moments = parts
        self._clip, self._has_positions = bool(weights["clip"]), "position_bias" in weights

    def add_embeddings(self, layers: int) -> None:
        """Add the input embeddings, and the keys and the position scores of all layers."""
        call, node = self.add_call, self.add_node
        call(f.InputEmbeddings, "token_ids position_ids table table_unit positions", "begin")
        self.add_norm("begin", "norm", "h")
        self.add_rounding("h", "word_steps", "words.codes")
        self.add_output("words.codes", "words")
        call(f.Constants, "token_ids constant", "constants")
        call(f.HeadRows, "rows token_ids heads key_heads", "query_rows value_rows all_key_rows")
        node("Split", "all_key_rows", _each(layers, "key_rows"), axis=1, num_outputs=layers)
        call(self._project, "words.codes constants keys keys_unit zero", "all_keys")
        null_key = "null_key"
        if self._is_integer:
            node("Cast", "null_key", "null_numbers", to=onnx.TensorProto.FLOAT)
            call(f.Steps, "null_numbers", null_key := "null_steps")
        call(f.OneHead, f"all_keys {null_key} one_head", "key_parts")
        if self._has_positions:
            call(f.PositionScores, "position_ids rows position_bias nowhere never", "all_bias")
            node("Split", "all_bias", _each(layers, "bias"), axis=1, num_outputs=layers)
        else:
            call(f.Padding, "rows token_ids never", "padding")

    def add_layer(self, i: int, h: str, state: str) -> tuple[str, str]:
        """Add layer i; return the names of its h and of its quantized state."""
        call = self.add_call
        call(self._project, f"{state} constants {i}.query {i}.query_unit zero", f"{i}.projected")
        call(f.OneHead, f"{i}.projected nothing one_head", f"{i}.parts")
        for part, source in {
            "query": f"{i}.parts query",
            "key": f"key_parts {i}.key",
            "value": f"{i}.parts value",
        }.items():
            self.add_node("Gather", f"{source}_rows", f"{i}.{part}_steps")
            call(self._numbers, f"{i}.{part}_steps", f"{i}.{part}_numbers")
        bias = f"{i}.bias" if self._has_positions else "padding"
        numbers = f"{i}.query_numbers {i}.key_numbers {i}.value_numbers {bias}"
        call(f.HardmaxHeads, numbers, f"{i}.means {i}.attended")
        call(self._steps, f"{i}.means", f"{i}.mean_steps")
        call(f.Merge, f"{i}.mean_steps token_rows flat", f"{i}.read")
        self.add_product(h, f"{i}.read", "zero", f"{i}.out", f"{i}.sum")
        self.add_norm(f"{i}.sum", f"{i}.norm1", f"{i}.h")
        self.add_rounding(f"{i}.h", f"{i}.middle_steps", f"{i}.middle")
        inputs = f"{i}.middle constants {i}.up {i}.up_unit none"  # clipped at 0: a relu
        call(self._project, inputs, f"{i}.wide")
        self.add_product(f"{i}.h", f"{i}.wide", "none", f"{i}.down", f"{i}.end")
        self.add_norm(f"{i}.end", f"{i}.norm2", f"{i}.last")
        self.add_rounding(f"{i}.last", f"{i}.state_steps", f"{i}.state")
        return f"{i}.last", f"{i}.state"

    def add_product(self, h: str, x: str, zero: str, weight: str, output: str) -> None:
        """Add a linear map of whole numbers, whose zero is `zero`, to the residual stream."""
        x = f"{x} {zero}" if self._is_integer else x
        self.add_call(self._add, f"{h} {x} {weight} {weight}_unit {weight}_bias", output)

    def add_rounding(self, source: str, factor: str, output: str) -> None:
        """Multiply by a factor and round."""
        self.add_node("Mul", f"{source} {factor}", f"{output}_exact")
        self.add_call(self._steps, f"{output}_exact", output)

    def add_output(self, codes: str, output: str) -> None:
        """Name as an output what `add_rounding` made, as uint8."""
        if self._is_integer:
            self.add_node("Identity", codes, output)
        else:
            self.add_call(f.Steps, f"{codes}_exact", output)

    def add_norm(self, source: str, norm: str, output: str) -> None:
        """Normalize with the parameters of a norm."""
        call, x, units = self.add_call, source, f"{output}.units"
        if self._clip:
            call(f.ClippedUnits, f"{source} limit", f"{(x := f'{output}.clipped')} {units}")
        else:
            call(f.Units, f"{source} limit", units)
        moments = f"{output}.mean {output}.squares"
        call(self._moments, units if self._is_integer else f"{units} width", moments)
        call(f.Standardized, f"{x} {moments} {norm}.gain {norm}.shift", output)


def _each(layers: int, name: str) -> str:
    return " ".join(f"{i}.{name}" for i in range(layers))


def _values(weights: Weights, layers: int, products: Products) -> dict[str, Array]:
    """Return the initializers: the weights, and the constants of the functions."""
    W, H = weights["table"].shape[1], int(weights["heads"])
    code, zero = (np.uint8, ZERO) if products == "integer" else (np.int8, 0)
    values = {name: value for name, value in weights.items() if name not in ("heads", "clip")} | {
        "heads": np.arange(H)[:, None],
        "key_heads": np.arange(layers * H)[:, None],
        "one_head": np.array([-1, W // H], np.int64),
        "flat": np.array([-1, W], np.int64),
        "nothing": np.full((1, 2 * W), zero, code),
        "zero": np.array(zero, code),
        "none": np.array(0, np.uint8),
        "constant": (np.array([BIAS_CHANNELS]) + zero).astype(code),
    }
    if products == "float":
        values["width"] = np.array(W, np.float32)
    if "position_bias" in weights:
        never = np.full((1, layers * H), NEVER, np.float32)
        return {**values, "nowhere": np.array([NO_POSITION], np.int64), "never": never}
    return {**values, "never": np.array(NEVER, np.float32)}
