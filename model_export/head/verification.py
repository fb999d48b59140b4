"""Check an exported head: ONNX Runtime gives what its operators give, to the bit, and the logits of torch."""

import numpy as np
import onnx

from model_export.encoder.model import OutputScales
from model_export.head.encoded import EncodedTexts
from model_export.head.fitting import predict_logits
from model_export.head.leader_head import LeaderHead
from model_export.referee import Referee
from service.errors import BundleError
from service.runtime.batcher import group_by_length
from service.runtime.session import Runtime
from service.text.head import HEAD_OUTPUTS, MAX_WORD_PAIRS

TOLERANCE = 1e-9  # torch and the graph add the same contributions in different orders


def check_head(
    model: onnx.ModelProto, head: LeaderHead, texts: EncodedTexts, scales: OutputScales | None = None
) -> None:
    """Compare the graph of a head with its operators and with torch on some texts.

    Raises:
        BundleError: They differ.
    """
    graph = model.SerializeToString()
    session, referee = Runtime("cpu", 1).open(graph), Referee(graph)
    names = [spec.name for spec in session.outputs if spec.name in HEAD_OUTPUTS]
    expected, n_equal = predict_logits(head, texts, scales), 0
    for rows in group_by_length([len(text) for text in texts.tokenized], MAX_WORD_PAIRS["cpu"], power=2):
        feeds = texts.feeds(rows)
        if different := referee.differences(session, feeds, names):
            problem = f"ONNX Runtime and the graph's operators differ in {', '.join(sorted(different))}"
            raise BundleError(problem, param="model.onnx")
        bias, contribution = session.run(feeds, ("bias", "contribution"))
        logits = (bias + contribution.sum(-1)).reshape(len(rows), -1)
        n_equal += np.isclose(logits, expected[rows], rtol=0, atol=TOLERANCE).all(1).sum()
    if not len(texts) or n_equal < len(texts):
        problem = f"torch and the graph agree on the logits of {n_equal} of {len(texts)} texts"
        raise BundleError(problem, param="model.onnx")
