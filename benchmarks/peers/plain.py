"""Plain FastAPI: typed request and response, one inference a request, in threads or in the event loop."""

from __future__ import annotations

from typing import Literal

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.sentiment import Classifier
from service.schemas.texts import Classification


class Question(BaseModel):
    input: str
    explain: Literal["leaders", "none"] = "leaders"


class Answer(BaseModel):
    data: list[Classification]


app = FastAPI()
classifier = Classifier()


@app.post("/threads", response_model_exclude_none=True)
def classify_in_a_thread(question: Question) -> Answer:
    return Answer.model_validate({"data": classifier.classify([question.input], question.explain)})


@app.post("/loop", response_model_exclude_none=True)
async def classify_in_the_loop(question: Question) -> Answer:
    return Answer.model_validate({"data": classifier.classify([question.input], question.explain)})
