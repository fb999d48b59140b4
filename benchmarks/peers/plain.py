"""Plain FastAPI: typed request and response, one inference a request, in threads or in the event loop."""

from __future__ import annotations

from typing import Literal

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.peers.sentiment import Classifier


class Question(BaseModel):
    input: str
    explain: Literal["leaders", "none"] = "leaders"


class Leader(BaseModel):
    word: str
    cluster: int
    since_layer: int
    followers: int
    contribution: float
    spans: list[tuple[int, int]]


class Cluster(BaseModel):
    id: int
    kind: Literal["leader", "tie"]
    leaders: list[str]
    words: list[str]
    share: float
    contribution: float


class Item(BaseModel):
    index: int
    label: str
    score: float
    probs: dict[str, float]
    logit: float
    bias: float
    tokens: int
    truncated: bool
    leaders: list[Leader] | None = None
    clusters: list[Cluster] | None = None


class Answer(BaseModel):
    data: list[Item]


app = FastAPI()
classifier = Classifier()


@app.post("/threads", response_model_exclude_none=True)
def classify_in_a_thread(question: Question) -> Answer:
    return Answer.model_validate({"data": classifier.classify([question.input], question.explain)})


@app.post("/loop", response_model_exclude_none=True)
async def classify_in_the_loop(question: Question) -> Answer:
    return Answer.model_validate({"data": classifier.classify([question.input], question.explain)})
