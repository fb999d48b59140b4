"""An ONNX function that scores many queries and keys in float32 and returns the pairs near the best score.

No other part of the dynamics costs queries times keys. Every operator has a CPU and
a CUDA kernel: Transpose, MatMul, Reshape, ReduceMax, Max, Sub, Unsqueeze, GreaterOrEqual, NonZero, Gather.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs

from onnxscript import opset20 as op
from onnxscript import script

from model_export.attention.functions import domain

KEYS_PER_RUN = 32  # keys that are returned together; their number must be a multiple of it


@script(domain)
def Screen(queries, keys, best, slack):
    """Runs of RUN keys in which some key comes within slack [q] of the best score so far.

    queries [q,d], keys [k,d], best [q]  ->  the best score now [q]; the runs, int64 [p], numbered along all
    keys of the first query, then of the second; and their scores [p,RUN].
    """
    last = op.Constant(value_ints=[-1])
    scores = op.Reshape(
        op.MatMul(queries, op.Transpose(keys, perm=[1, 0])), op.Constant(value_ints=[0, -1, KEYS_PER_RUN])
    )
    tops = op.ReduceMax(scores, last, keepdims=0)  # [q, k / KEYS_PER_RUN]
    best = op.Max(best, op.ReduceMax(tops, last, keepdims=0))
    near = op.Reshape(tops >= op.Unsqueeze(best - slack, last), last)
    runs = op.Reshape(op.NonZero(near), last)
    return best, runs, op.Gather(op.Reshape(scores, op.Constant(value_ints=[-1, KEYS_PER_RUN])), runs, axis=0)
