"""The client's protocol, over httpx's in-memory transport: what is sent, retried, and read."""

import asyncio
import inspect
import io
import json
import pydoc
from collections.abc import Callable

import httpx
import numpy as np
import pytest

from hardmax import (
    AsyncClient,
    Client,
    ConnectionFailed,
    InvalidInput,
    Overloaded,
    RemoteError,
)

Handler = Callable[[httpx.Request], httpx.Response]


def classified(request: httpx.Request) -> httpx.Response:
    """Answers every text with its own length as the logit, and refuses an empty one as the service does."""
    texts = json.loads(request.content)["input"]
    texts = [texts] if isinstance(texts, str) else texts
    if "" in texts:
        error = {
            "type": "invalid_input",
            "message": "the text is empty",
            "param": f"input[{texts.index('')}]",
        }
        return httpx.Response(422, json={"error": error})
    data = [
        {"index": i, "label": "positive", "score": 0.9, "probs": {"negative": 0.1, "positive": 0.9},
         "logit": float(len(text)), "bias": 0.0, "tokens": 1, "truncated": False}
        for i, text in enumerate(texts)
    ]  # fmt: skip
    body = {"id": "r", "model": "m", "usage": {"texts": len(data), "tokens": 1}, "data": data}
    return httpx.Response(200, json=body)


def client(handler: Handler, **options: object) -> Client:
    return Client("http://test/api", transport=httpx.MockTransport(handler), **options)  # type: ignore[arg-type]


def test_client_sends_long_lists_in_batches_and_numbers_the_results() -> None:
    sizes = []

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/classify"
        sizes.append(len(json.loads(request.content)["input"]))
        return classified(request)

    with client(handler) as hardmax:
        results = hardmax.classify(["a" * n for n in range(1, 8)], batch_size=3)
    assert sizes == [3, 3, 1]
    assert [(result.index, result.logit) for result in results] == [(n, n + 1.0) for n in range(7)]


def test_client_tells_which_text_of_a_long_list_is_refused() -> None:
    texts = ["good"] * 300 + [""] + ["bad"]
    with client(classified) as hardmax, pytest.raises(InvalidInput) as refused:
        hardmax.classify(texts)
    assert (refused.value.index, refused.value.param) == (300, "input[300]")
    assert str(refused.value) == refused.value.message == "input[300]: the text is empty"


def test_client_gives_a_list_that_knows_its_model_and_usage() -> None:
    with client(classified) as hardmax:
        answers = hardmax.classify(["good", "bad"], batch_size=1)
    assert (answers.model, answers.usage.texts, answers.usage.tokens) == ("m", 2, 2)
    assert [answer.label for answer in answers] == ["positive", "positive"]


def test_client_has_every_call_of_the_async_client_and_names_its_options() -> None:
    names = ("classify", "dynamics", "classify_sequences", "control", "models", "info", "stream_dynamics")
    for name in names:
        waiting, asynchronous = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(waiting) == inspect.signature(asynchronous)
        assert waiting.__doc__ == asynchronous.__doc__
        kinds = {each.kind for each in inspect.signature(waiting).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert inspect.signature(Client.dynamics).parameters["alpha"].default == 1.0
    assert "alpha: 'float' = 1.0" in pydoc.plain(pydoc.render_doc(Client.dynamics))
    with client(classified) as hardmax, pytest.raises(TypeError, match="trajectory"):
        hardmax.dynamics([[1.0]], trajectory=True)  # type: ignore[call-arg]


def test_client_sends_only_the_options_that_were_given() -> None:
    seen: list[dict[str, object]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return classified(request)

    with client(handler) as hardmax:
        hardmax.classify("one", model="small", explain="none", truncate=False)
        hardmax.classify("two")
    assert seen == [
        {"input": "one", "model": "small", "explain": "none", "truncate": False},
        {"input": "two", "explain": "leaders"},
    ]


def test_client_retries_what_passes_and_waits_as_long_as_it_is_told() -> None:
    answers = [
        httpx.Response(429, headers={"retry-after": "0.01"}),
        httpx.Response(503, headers={"retry-after": "0"}),
    ]

    def handler(request: httpx.Request) -> httpx.Response:
        return answers.pop(0) if answers else classified(request)

    with client(handler) as hardmax:
        assert hardmax.classify("good").logit == 4.0
    assert answers == []


def test_client_gives_up_after_its_retries_with_the_servers_words() -> None:
    calls = []
    error = {"type": "overloaded", "message": "256 requests are being worked on", "request_id": "abc"}

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(429, json={"error": error}, headers={"retry-after": "0"})

    with client(handler, retries=2) as hardmax, pytest.raises(Overloaded) as refused:
        hardmax.classify("good")
    assert len(calls) == 3
    assert (refused.value.status, refused.value.request_id) == (429, "abc")
    assert refused.value.message == "256 requests are being worked on"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "text"}', b'{"error": null}'])
def test_client_reads_errors_that_are_not_ours(body: bytes) -> None:
    broken = client(lambda request: httpx.Response(502, content=body))
    with broken as hardmax, pytest.raises(RemoteError) as refused:
        hardmax.classify("good")
    assert refused.value.status == 502
    assert refused.value.message


def test_client_failure_to_connect_is_one_line() -> None:
    with Client("http://127.0.0.1:1") as hardmax, pytest.raises(ConnectionFailed, match="no answer"):
        hardmax.classify("good")


def test_client_sends_clouds_as_npy_unless_a_long_matrix_comes_along() -> None:
    seen: list[httpx.Request] = []
    result = {
        "id": "r", "n": 2, "d": 1, "alpha": 0.5, "status": "certified", "layers": 0, "certified_layer": 0,
        "margin": None, "leaders": [], "clusters": [],
    }  # fmt: skip

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=result)

    with client(handler) as hardmax:
        hardmax.dynamics([[1.0], [-2.0]], alpha=0.5, include=["limits", "polytope"])
        hardmax.dynamics(np.ones((2, 1), np.float32), A=np.eye(1))
        hardmax.dynamics(np.ones((1, 30)), A=np.eye(30))
    assert seen[0].headers["content-type"] == "application/x-npy"
    assert np.load(io.BytesIO(seen[0].content)).tolist() == [[1.0], [-2.0]]
    params = seen[0].url.params
    assert (params["alpha"], params["include"], "A" in params) == ("0.5", "limits,polytope", False)
    assert seen[1].url.params["A"] == "[[1.0]]"
    assert np.load(io.BytesIO(seen[1].content)).dtype == np.float32
    assert json.loads(seen[2].content)["points"] == [[1.0] * 30]
    assert json.loads(seen[2].content)["A"] == np.eye(30).tolist()


def test_client_streams_a_line_at_a_time() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept"] == "application/x-ndjson"
        return httpx.Response(200, content=b'{"layer": 1}\n{"status": "certified"}\n')

    with client(handler) as hardmax:
        assert list(hardmax.stream_dynamics([[1.0]])) == [{"layer": 1}, {"status": "certified"}]


def test_client_stream_that_is_refused_or_left_is_closed() -> None:
    streams: list[httpx.Response] = []

    def handler(request: httpx.Request) -> httpx.Response:
        refused = len(streams) == 0
        error = {"error": {"type": "overloaded", "message": "later"}}
        lines = b'{"layer": 1}\n{"layer": 2}\n'
        answer = httpx.Response(429, json=error) if refused else httpx.Response(200, content=lines)
        streams.append(answer)
        return answer

    with client(handler) as hardmax:
        with pytest.raises(Overloaded, match="later"):
            next(hardmax.stream_dynamics([[1.0]]))
        lines = hardmax.stream_dynamics([[1.0]])
        assert next(lines) == {"layer": 1}
        lines.close()  # type: ignore[attr-defined]
    assert [stream.is_closed for stream in streams] == [True, True]


def test_client_carries_its_key() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer k"
        return httpx.Response(200, json={"models": []})

    with client(handler, api_key="k") as hardmax:
        assert hardmax.models() == []


def test_async_client_speaks_the_same_protocol() -> None:
    answers = [httpx.Response(503, headers={"retry-after": "0"})]

    def handler(request: httpx.Request) -> httpx.Response:
        return answers.pop(0) if answers else classified(request)

    async def scenario() -> list[float]:
        transport = httpx.MockTransport(handler)
        async with AsyncClient("http://test", transport=transport) as hardmax:
            return [result.logit for result in await hardmax.classify(["a", "bb", "ccc"], batch_size=2)]

    assert asyncio.run(scenario()) == [1.0, 2.0, 3.0]


def test_async_client_streams_a_line_at_a_time() -> None:
    async def scenario() -> list[dict[str, object]]:
        content = b'{"layer": 1}\n{"status": "certified"}\n'
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
        async with AsyncClient("http://test", transport=transport) as hardmax:
            return [line async for line in hardmax.stream_dynamics([[1.0]])]

    assert asyncio.run(scenario()) == [{"layer": 1}, {"status": "certified"}]
