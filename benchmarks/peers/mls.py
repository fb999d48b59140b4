"""MLServer: a custom runtime behind its protocol; the item travels as JSON in a BYTES tensor."""

from __future__ import annotations

import json

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.peers.sentiment import Classifier


class Reviews(MLModel):
    async def load(self) -> bool:
        self.classifier = Classifier()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        texts = StringCodec.decode_input(payload.inputs[0])
        items = [json.dumps(item) for item in self.classifier.classify(texts)]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("items", items)])
