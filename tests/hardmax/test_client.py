"""The protocol of the client, over httpx's in-memory transport: requests, retries and responses."""

import asyncio
import copy
import io
import json
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import httpx
import numpy as np
import pandas
import pyarrow
import pytest

from hardmax import (
    Answers,
    AsyncClient,
    Client,
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    Overloaded,
    RemoteError,
    TooLarge,
    UnexpectedAnswer,
    transport,
)
from hardmax.dataframe import RESULT_COLUMNS

Handler = Callable[[httpx.Request], httpx.Response]
ENTRY = {
    "index": 0, "label": "positive", "score": 0.9, "probs": {"negative": 0.1, "positive": 0.9},
    "logit": 1, "bias": 0.0, "n_words": 1, "n_tokens": 1, "truncated": False,
}  # fmt: skip


def error_response(status: int, kind: str, message: str, **fields: object) -> httpx.Response:
    return httpx.Response(status, json={"error": {"type": kind, "message": message, **fields}})


def classify(request: httpx.Request) -> httpx.Response:
    """Answer every text with its length as the logit, and refuse an empty one as the service does."""
    texts = json.loads(request.content)["input"]
    texts = [texts] if isinstance(texts, str) else texts
    if "" in texts:
        return error_response(422, "invalid_input", "the text is empty", param=f"input[{texts.index('')}]")
    return respond(*({**ENTRY, "index": i, "logit": float(len(text))} for i, text in enumerate(texts)))


def respond(*data: dict[str, Any]) -> httpx.Response:
    body = {"id": "r", "model": "m", "usage": {"texts": len(data), "tokens": 1}, "data": data}
    return httpx.Response(200, json=body)


class Server:
    """Returns these responses in turn, then those of `then`; records the requests."""

    def __init__(self, *responses: httpx.Response, then: Handler = classify) -> None:
        self.responses, self.then = list(responses), then
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.responses.pop(0) if self.responses else self.then(request)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def client(handler: Handler = classify, kind: Any = Client, **options: object) -> Any:
    return kind("http://test/api", transport=httpx.MockTransport(handler), **options)


def client_of(response: httpx.Response, **options: object) -> Client:
    """Return a client of a server with one response."""
    return client(lambda request: response, **options)


def test_client_sends_long_lists_in_batches_and_gives_one_list_of_answers() -> None:
    server = Server()
    with client(server) as hardmax:
        results = hardmax.classify(["a" * n for n in range(1, 8)], batch_size=3)
    assert {request.url.path for request in server.requests} == {"/api/classify"}
    assert [len(body["input"]) for body in server.bodies] == [3, 3, 1]
    assert [(result.index, result.logit) for result in results] == [(n, n + 1.0) for n in range(7)]
    assert [result.label for result in results] == ["positive"] * 7
    assert (results.model, results.usage.texts, results.usage.tokens) == ("m", 7, 7)


def test_client_sends_few_texts_in_a_request_where_each_is_searched() -> None:
    server = Server()
    texts = [f"text {i}" for i in range(20)]
    for search in ("flip", "sufficient"):
        assert len(client(server).classify(texts, **{search: True})) == 20
    assert [len(body["input"]) for body in server.bodies] == [16, 4, 16, 4]


def test_client_error_has_the_index_of_the_refused_text() -> None:
    with client() as hardmax, pytest.raises(InvalidInput) as error:
        hardmax.classify(["", *["good"] * 299, b"", "bad"])
    assert (error.value.index, error.value.param) == (300, "input[300]")
    message = "input[300]: this should be a string, not bytes"
    assert str(error.value) == error.value.message == message


@pytest.mark.parametrize("kind", [list, pandas.Series, pyarrow.array])
def test_client_answers_blank_texts_as_empty_without_sending_them(kind: Any) -> None:
    """Their neighbours have their own answers and errors, at their own places."""
    server = Server()
    texts = ["", "a", " \n", None, "bb", None, "ccc"]
    with client(server) as hardmax:
        answers = hardmax.classify(kind(texts), batch_size=2)
        assert hardmax.classify([None, ""]).abstained == 2
        assert hardmax.classify("").abstain_reason == "empty"
        kept = hardmax.classify(["", 7, None, "a"], errors="keep")
    assert [answer.index for answer in answers] == list(range(7))
    reasons = [answer.abstain_reason for answer in answers]
    assert reasons == ["empty", None, "empty", "empty", None, "empty", None]
    assert [answer.logit for answer in answers if answer.label] == [1.0, 2.0, 3.0]
    assert [body["input"] for body in server.bodies] == [["a", "bb"], ["ccc"], ["a"]]
    assert (answers[0].row["label"], answers[0].row["score"]) == (None, None)
    assert (answers[0].verdict, answers.abstained) == ("no label (abstains: empty)", 4)
    assert json.loads(json.dumps(answers[0].document, allow_nan=False))["abstain_reason"] == "empty"
    assert [(answer.index, str(answer.error and answer.error.param)) for answer in kept] == [
        (0, "None"), (1, "input[1]"), (2, "None"), (3, "None"),
    ]  # fmt: skip


def test_client_sends_only_the_options_that_were_given() -> None:
    server = Server()
    with client(server) as hardmax:
        hardmax.classify("one", model=["a", "b@2"], explain="none", truncate=False, offset_unit="utf16")
        hardmax.classify("two", without=[(0, 3)], flip=True, sufficient=True)
        hardmax.classify("three")
    assert server.bodies == [
        {"input": "one", "model": ["a", "b@2"], "explain": "none", "truncate": False, "offset_unit": "utf16"},
        {"input": "two", "explain": "leaders", "without": [[0, 3]], "flip": True, "sufficient": True},
        {"input": "three", "explain": "leaders"},
    ]


def test_client_retries_temporary_errors_after_the_time_of_the_server() -> None:
    waits = ((429, "0.01"), (503, "0"))
    server = Server(*(httpx.Response(status, headers={"retry-after": s}) for status, s in waits))
    with client(server) as hardmax:
        assert hardmax.classify("good").logit == 4.0
    assert len(server.requests) == 3


@pytest.mark.parametrize("header", ["nan", "inf", "-1", "1e400", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_client_waits_a_moment_without_a_valid_retry_after(header: str) -> None:
    with client(Server(httpx.Response(429, headers={"retry-after": header}))) as hardmax:
        assert hardmax.classify("good").logit == 4.0


def test_client_raises_the_error_of_the_server_after_its_retries() -> None:
    message = "256 requests are being worked on"
    responses = [error_response(429, "overloaded", message, request_id="abc") for _ in range(3)]
    for response in responses:
        response.headers["retry-after"] = "0"
    server = Server(*responses)
    with client(server, retries=2) as hardmax, pytest.raises(Overloaded) as error:
        hardmax.classify("good")
    assert len(server.requests) == 3
    assert (error.value.status, error.value.request_id) == (429, "abc")
    assert error.value.message == message


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "text"}', b'{"error": null}'])
def test_client_reads_errors_of_other_servers(body: bytes) -> None:
    with client_of(httpx.Response(502, content=body)) as hardmax, pytest.raises(RemoteError) as error:
        hardmax.classify("good")
    assert error.value.status == 502
    assert error.value.message


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://localhost", "http://", "http://localhost:99999", "http://localhost:port",
     "http://[::1"],
)  # fmt: skip
def test_client_refuses_an_invalid_url(kind: Any, url: str) -> None:
    with pytest.raises(
        InvalidInput, match="not the address of a server: it should look like http://"
    ) as error:
        kind(url)
    assert error.value.param == "url"


@pytest.mark.parametrize("key", ["schl\u00fcssel", "two\nlines", "bell\a"])
def test_client_refuses_a_key_with_invalid_characters_without_printing_it(key: str) -> None:
    with pytest.raises(InvalidInput, match="printable ASCII characters") as error:
        Client(api_key=key)
    assert key not in str(error.value)


RUN = {
    "id": "r", "n": 2, "d": 1, "alpha": 0.5, "status": "certified", "layers": 0, "certified_layer": 0,
    "margin": None, "leaders": [], "clusters": [],
}  # fmt: skip


def test_answers_can_be_pickled_copied_and_compared() -> None:
    server = Server(httpx.Response(200, json=RUN))
    with client(server) as hardmax:
        answers: Any = hardmax.dynamics([[1.0], [2.0]]), hardmax.classify("a"), hardmax.classify(["a"])
    for answer in answers:
        for copied in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
            assert (copied, type(copied), repr(copied)) == (answer, type(answer), repr(answer))


def test_client_sends_clouds_as_npy_unless_a_long_matrix_comes_along() -> None:
    server = Server(then=lambda request: httpx.Response(200, json=RUN))
    with client(server) as hardmax:
        hardmax.dynamics([[1.0], [-2.0]], alpha=0.5, include=["limits", "polytope"])
        hardmax.dynamics(np.ones((2, 1), np.float32), A=np.eye(1))
        hardmax.dynamics(np.ones((1, 32)), A=np.eye(32))
    without_matrix, with_matrix, with_long_matrix = server.requests
    assert without_matrix.headers["content-type"] == "application/x-npy"
    assert np.load(io.BytesIO(without_matrix.content)).tolist() == [[1.0], [-2.0]]
    params = without_matrix.url.params
    assert (params["alpha"], params["include"], "A" in params) == ("0.5", "limits,polytope", False)
    assert with_matrix.url.params["A"] == "[[1.0]]"
    assert np.load(io.BytesIO(with_matrix.content)).dtype == np.float32
    body = json.loads(with_long_matrix.content)
    assert (body["points"], body["A"]) == ([[1.0] * 32], np.eye(32).tolist())


@pytest.mark.parametrize("A", [np.random.default_rng(0).normal(size=(44, 44)), np.eye(93)])
def test_client_sends_a_cloud_that_is_long_for_json_as_npy_with_a_long_matrix(A: Any) -> None:
    server = Server(then=lambda request: httpx.Response(413))
    points = np.ones((600_000 // len(A) + 1, len(A)))
    with client(server) as hardmax, pytest.raises(RemoteError):
        hardmax.dynamics(points, A=A)
    (request,) = server.requests
    assert np.load(io.BytesIO(request.content)).shape == points.shape
    assert json.loads(request.url.params["A"]) == A.tolist()
    assert len(request.url.raw_path) < 60_500  # the edge reads 62 kB of a head, the service 64


def test_client_sends_a_matrix_that_is_too_long_for_a_head_in_the_body() -> None:
    server = Server(then=lambda request: httpx.Response(413))
    with client(server) as hardmax, pytest.raises(RemoteError):
        hardmax.dynamics(np.ones((6_000, 104)), A=np.eye(104))  # 65,523 characters when escaped
    (request,) = server.requests
    assert request.url.query == b""
    assert json.loads(request.content)["A"] == np.eye(104).tolist()


@pytest.mark.parametrize(
    ("method", "args", "place"),
    [
        ("dynamics", [[[1.0, 2.0], [3.0, np.nan]]], "points[1][1]"),
        ("stream_dynamics", [np.array([[np.inf]], np.float32)], "points[0][0]"),
        ("control", [[[-np.inf, 1]]], "points[0][0]"),
        ("classify_sequences", ["m", [[[1.0]], [[1.0], [np.nan]]]], "sequences[1][1][0]"),
    ],
)
def test_client_refuses_numbers_that_are_not_finite_by_their_place(
    method: str, args: list[Any], place: str
) -> None:
    server = Server()
    with client(server) as hardmax, pytest.raises(InvalidInput) as error:
        getattr(hardmax, method)(*args)
    assert error.value.message == f"{place} is not a finite number"  # the message of the server
    assert (error.value.param, server.requests) == (place, [])


def test_client_refuses_a_matrix_that_is_not_finite_and_numbers_that_are_none() -> None:
    with client() as hardmax:
        with pytest.raises(InvalidInput, match=r"^A\[0\]\[1\] is not a finite number"):
            hardmax.dynamics([[1.0, 2.0]], A=[[1.0, np.nan], [0.0, 1.0]])
        with pytest.raises(InvalidInput, match=r"^points: rows of numbers.*too large"):
            hardmax.dynamics([[10**400]])
        with pytest.raises(InvalidInput, match=r"^points: rows of numbers.*complex"):
            hardmax.dynamics([[1.0 + 2j]])


def lines_of(*documents: dict[str, object]) -> httpx.Response:
    return httpx.Response(200, content="\n".join(json.dumps(document) for document in documents))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_client_streams_a_line_at_a_time(kind: Any) -> None:
    server = Server(lines_of({"layer": 1}, {"status": "certified"}))

    async def scenario() -> list[dict[str, object]]:
        async with client(server, AsyncClient) as hardmax:
            return [line async for line in hardmax.stream_dynamics([[1.0]])]

    if kind is AsyncClient:
        lines = asyncio.run(scenario())
    else:
        with client(server) as hardmax:
            lines = list(hardmax.stream_dynamics([[1.0]]))
    assert lines == [{"layer": 1}, {"status": "certified"}]
    assert server.requests[0].headers["accept"] == "application/x-ndjson"


def test_client_closes_a_stream_that_is_refused_or_abandoned() -> None:
    streams = [error_response(429, "overloaded", "later"), lines_of({"layer": 1}, {"layer": 2})]
    with client(Server(*streams)) as hardmax:
        with pytest.raises(Overloaded, match="later"):
            next(hardmax.stream_dynamics([[1.0]]))
        lines = hardmax.stream_dynamics([[1.0]])
        assert next(lines) == {"layer": 1}
        lines.close()
    assert [stream.is_closed for stream in streams] == [True, True]


def test_client_sends_its_key() -> None:
    server = Server(httpx.Response(200, json={"models": []}))
    with client(server, api_key="k\n") as hardmax:  # as read from a file
        assert hardmax.models() == []
    assert server.requests[0].headers["authorization"] == "Bearer k"


def test_async_client_has_the_same_protocol() -> None:
    async def scenario() -> list[float]:
        async with client(Server(httpx.Response(503, headers={"retry-after": "0"})), AsyncClient) as hardmax:
            return [result.logit for result in await hardmax.classify(["a", "bb", "ccc"], batch_size=2)]

    assert asyncio.run(scenario()) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "bb"],
        ("a", "bb"),
        (text for text in ["a", "bb"]),
        {"a": 1, "bb": 2}.keys(),
        pyarrow.chunked_array([["a"], ["bb"]]),
    ],
)
def test_client_accepts_any_iterable_of_texts(texts: Iterable[str]) -> None:
    with client() as hardmax:
        assert [answer.logit for answer in hardmax.classify(texts)] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", 7], "input[1]: this should be a string, not int"),
        (["a", "b", b"c"], "input[2]: this should be a string, not bytes"),
        (["a", "", None, "half \ud83d"], "input[3]: the text contains half a character: a lone surrogate"),
        (None, "expected a text or many, not NoneType; of a table give one column"),
        (7, "expected a text or many, not int; of a table give one column"),
        (b"a", "expected a text or many, not bytes; of a table give one column"),
        (
            pandas.DataFrame({"a": ["b"]}),
            "expected a text or many, not DataFrame; of a table give one column",
        ),
    ],
)
def test_client_refuses_other_types_than_texts_by_their_place(texts: Any, message: str) -> None:
    server = Server()
    with client(server) as hardmax, pytest.raises(InvalidInput) as error:
        hardmax.classify(texts)
    assert error.value.message == message
    assert server.requests == []


def test_client_writes_numbers_of_numpy_and_refuses_what_json_lacks() -> None:
    server = Server()
    with client(server) as hardmax:
        hardmax.classify("a film", explain=None, without=np.array([[0, 1]]))
        with pytest.raises(InvalidInput, match="the request cannot be written as JSON: 'utf-8' codec"):
            hardmax.classify("a", model="\udcff")
    assert server.bodies == [{"input": "a film", "without": [[0, 1]]}]


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan"), None, "60"])
def test_client_refuses_a_timeout_that_is_no_time(timeout_s: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout_s should be a number of seconds, at most a day"):
        client(timeout_s=timeout_s)


def test_client_sends_many_sequences_in_several_requests() -> None:
    def label(request: httpx.Request) -> httpx.Response:
        sequences = json.loads(request.content)["sequences"]
        labels = [
            {"index": i, "label": points[0][0], "margin": None, "leader": 0}
            for i, points in enumerate(sequences)
        ]
        if [[-1.0]] in sequences:
            param = f"sequences[{sequences.index([[-1.0]])}]"
            return error_response(422, "invalid_input", f"{param} is odd", param=param)
        return httpx.Response(200, json={"id": "r", "model": "m", "data": labels})

    server = Server(then=label)
    with client(server) as hardmax:
        labels = hardmax.classify_sequences("m", [[[float(i)]] for i in range(1500)])
        assert [entry.label for entry in labels] == [entry.index for entry in labels] == list(range(1500))
        assert [len(body["sequences"]) for body in server.bodies] == [1024, 476]
        assert len(hardmax.classify_sequences("m", [np.zeros((60_000, 1))] * 2)) == 2
        with pytest.raises(InvalidInput, match=r"sequences\[1030\] is odd") as error:
            hardmax.classify_sequences("m", [[[0.0]]] * 1030 + [[[-1.0]]])
    assert error.value.index == 1030
    assert len(server.requests) == 6


def test_client_refuses_an_answer_with_too_few_sequences() -> None:
    document = {"id": "r", "model": "m", "data": []}
    with (
        client_of(httpx.Response(200, json=document)) as hardmax,
        pytest.raises(UnexpectedAnswer, match="an entry for each sequence"),
    ):
        hardmax.classify_sequences("m", [[[1.0]]])


def test_client_leaves_it_to_the_server_to_refuse_a_sequence_for_sequences() -> None:
    server = Server(then=lambda request: error_response(422, "invalid_input", "sequences[0] is odd"))
    with client(server) as hardmax, pytest.raises(InvalidInput, match="is odd"):
        hardmax.classify_sequences("m", [[0.0, 1.0], [1.0, 0.0]])
    assert server.bodies[0]["sequences"] == [[0.0, 1.0], [1.0, 0.0]]


def test_part_of_answers_is_answers() -> None:
    series = pandas.Series(["a", "bb", "ccc"], index=[7, 8, 9])
    with client() as hardmax:
        part = hardmax.classify(series)[1:]
    assert isinstance(part, Answers)
    assert part.to_frame().index.tolist() == [8, 9]
    assert part.model == "m"


def test_client_keeps_the_other_answers_if_a_text_is_refused() -> None:
    """By the client or by the server, and for a single text as well."""

    def strict(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        if "bad" not in texts:
            return classify(request)
        param = f"input[{texts.index('bad')}]" if isinstance(texts, list) else "input"
        return error_response(413, "too_large", "the text has too many words", param=param)

    texts: list[Any] = ["a"] * 300 + ["half \ud83d"] + ["bb"] * 10 + ["bad"] + ["ccc"] * 300
    with client(strict) as hardmax:
        answers = hardmax.classify(texts, errors="keep")
        assert hardmax.classify("bad", errors="keep").verdict == "no answer: the text has too many words"
    assert [answer.index for answer in answers] == list(range(612))
    assert [answer.text for answer in answers] == texts
    errors = {answer.index: answer.error for answer in answers if answer.error}
    assert {index: type(error) for index, error in errors.items()} == {300: InvalidInput, 311: TooLarge}
    assert [error.index for error in errors.values()] == [300, 311]  # in the list, not in the batch
    assert [answer.logit for answer in answers if not answer.error] == [1.0] * 300 + [2.0] * 10 + [3.0] * 300


def test_client_keeps_an_answer_for_each_of_many_refused_texts() -> None:
    server = Server()
    with client(server) as hardmax:
        answers = hardmax.classify([7] * 1023 + ["a"], errors="keep", batch_size=1024)
    assert [answer.index for answer in answers] == list(range(1024))
    verdicts = ["no answer: this should be a string, not int", "positive 90.0%"]
    assert [answer.verdict for answer in answers[-2:]] == verdicts
    assert [body["input"] for body in server.bodies] == [["a"]]


@pytest.mark.parametrize("errors", ["keep", "raise"])
@pytest.mark.parametrize("texts", ["wrong", ["wrong"], ["a", "b", "wrong"]])
def test_client_raises_the_error_of_an_option_without_an_index(texts: Any, errors: Any) -> None:
    def strict(request: httpx.Request) -> httpx.Response:
        if "wrong" not in json.loads(request.content)["input"]:
            return classify(request)
        return error_response(422, "invalid_input", "model[0]: should be a name", param="model[0]")

    with client(strict) as hardmax, pytest.raises(InvalidInput) as error:
        hardmax.classify(texts, errors=errors, batch_size=2)
    assert (error.value.param, error.value.message) == ("model[0]", "model[0]: should be a name")


def test_client_keeps_the_other_answers_if_a_text_exceeds_the_body_limit() -> None:
    def small(request: httpx.Request) -> httpx.Response:
        if len(request.content) < 1000:
            return classify(request)
        return error_response(413, "too_large", "the body has more than 1000 bytes (PAYLOAD_LIMIT_MB)")

    texts = ["a", "b" * 2000, "c"]
    with client(small) as hardmax:
        answers = hardmax.classify(texts, errors="keep")
        assert type(hardmax.classify(texts[1], errors="keep").error) is TooLarge
        with pytest.raises(TooLarge):
            hardmax.classify(texts)
    assert [type(answer.error) for answer in answers] == [type(None), TooLarge, type(None)]
    assert [answer.text for answer in answers] == texts


def test_client_refuses_unknown_values_of_errors() -> None:
    ignore: Any = "ignore"
    with client() as hardmax, pytest.raises(InvalidInput, match='errors should be "raise" or "keep"'):
        hardmax.classify(["a", ""], errors=ignore)


def test_client_sends_bodies_below_the_limit_of_the_server() -> None:
    """4 MB of JSON, however many bytes a character takes."""
    server = Server()
    with client(server) as hardmax:
        assert len(hardmax.classify(["\x01" * 200_000 + "a"] * 30)) == 30
    assert len(server.requests) == 15
    assert max(len(request.content) for request in server.requests) < 4_000_000


def test_verdict_of_a_multi_label_answer_without_labels() -> None:
    no_label, labels = ({**ENTRY, "labels": labels} for labels in ([], ["negative", "positive"]))
    two_models = {"index": 0, "answers": {"m": no_label, "n": ENTRY}}
    with client(Server(then=lambda request: respond(no_label, labels, two_models, ENTRY))) as hardmax:
        answers = hardmax.classify(["a"] * 4)
    verdicts = ["none of its labels", "negative, positive 90.0%", "none of its labels", "positive 90.0%"]
    assert [answer.verdict for answer in answers] == verdicts
    rows = [(None, None), ("negative, positive", 0.9), (None, None), ("positive", 0.9)]
    assert [(answer.row["label"], answer.row["score"]) for answer in answers] == rows
    counts = "2 none of its labels, 1 negative, positive, 1 positive"
    assert repr(answers) == f"<4 answers by m: {counts}>"
    assert {name: (item.label, item.model) for name, item in answers[2].answers.items()} == {
        "m": ("positive", "m"), "n": ("positive", "n"),
    }  # fmt: skip
    assert set(answers[2].document) == {"index", "answers"}


def test_client_ignores_unknown_fields() -> None:
    with client_of(respond({**ENTRY, "later": {"than": "this client"}})) as hardmax:
        answer = hardmax.classify("good")
    assert (answer.label, answer.document["later"]) == ("positive", {"than": "this client"})


def test_answer_always_has_leaders_a_verdict_and_a_line() -> None:
    with client() as hardmax:
        answers = hardmax.classify(["http://x.y/z", "A\x1b[31m film " * 100])
        assert repr(hardmax.classify(["a"] * 300)) == "<300 answers by m: 300 positive>"
    for answer in answers:
        assert (answer.leaders, answer.clusters, answer.reason) == ([], [], "")
        assert len(repr(answer)) < 150
        assert "\x1b" not in repr(answer)
    assert repr(answers) == "<2 answers by m: 2 positive>"


# ---------------------------------------- other servers, and failures


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Sign in</html>", b"", b"null", b"[]", b"[" * 100_000, b'{"data": ' + b"1" * 5000 + b"}",
        b'{"data": []}', b'{"data": {"0": 1}}', b'{"data": [7]}', b'{"data": [{"index": 0, "label": "a"}]}',
        b'{"data": [{"answers": {"m": 7}}]}',
        *(json.dumps({"data": data}).encode() for data in (
            [ENTRY | {"score": "high"}], [ENTRY | {"leaders": [{"word": 1}]}], [ENTRY | {"n_words": True}],
            [ENTRY, ENTRY],
        )),
        *(json.dumps({"data": [ENTRY | {"score": 7}]}).replace("7", number).encode() for number in (
            "NaN", "Infinity", "1e999", "-0.5", "1.5",  # no probabilities
        )),
    ],
)  # fmt: skip
def test_client_refuses_responses_of_other_servers(body: bytes) -> None:
    with client(lambda request: httpx.Response(200, content=body)) as hardmax:
        with pytest.raises(UnexpectedAnswer):
            hardmax.classify("good")
        with pytest.raises(UnexpectedAnswer):
            hardmax.dynamics([[1.0]])


def test_client_validates_a_list_up_to_its_first_error() -> None:
    """An error takes a hundred bytes, an entry two."""
    trajectory = [[[0.0, 0.0]], [["a"] * 100_000]]
    with (
        client_of(respond(ENTRY | {"trajectory": trajectory})) as hardmax,
        pytest.raises(UnexpectedAnswer, match=r"trajectory\.1\.0\.0: ") as error,
    ):
        hardmax.classify("good")
    cause: Any = error.value.__context__
    assert cause.error_count() == 1


def test_client_error_has_the_location_of_a_redirect() -> None:
    moved = httpx.Response(301, headers={"location": "https://test/api/classify"})
    with client_of(moved) as hardmax, pytest.raises(RemoteError, match="points to https://test/api/classify"):
        hardmax.classify("good")


class Endless(httpx.SyncByteStream):
    """An endless response in one line."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b"1" * 65536


def test_client_stops_reading_an_endless_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_RECEIVED_BYTES", 10 * 65536)
    with client(lambda request: httpx.Response(200, stream=Endless())) as hardmax:
        with pytest.raises(UnexpectedAnswer, match="more than"):
            hardmax.classify("good")
        with pytest.raises(UnexpectedAnswer, match="more than"):
            next(hardmax.stream_dynamics([[1.0]]))


def test_client_stream_raises_an_error_after_its_first_line() -> None:
    error = {"error": {"type": "deadline_exceeded", "message": "it took longer than 60 s"}}
    with client_of(lines_of({"progress": {"layer": 1}}, error)) as hardmax:
        lines = hardmax.stream_dynamics([[1.0]])
        assert next(lines) == {"progress": {"layer": 1}}
        with pytest.raises(DeadlineExceeded, match="longer than 60 s"):
            next(lines)


def test_client_error_has_no_control_characters() -> None:
    message = "\x1b]0;owned\x07 \u202egnp.exe"
    response = error_response(500, "\x1b[2J", message, param="\x9b1m", request_id="\x1b")
    with client_of(response) as hardmax, pytest.raises(RemoteError) as error:
        hardmax.classify("good")
    text = f"{error.value} {error.value.param} {error.value.request_id} {error.value.type}"
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert "owned" in text


# ---------------------------------------- tables


def test_frame_of_no_answers_has_all_columns() -> None:
    with client() as hardmax:
        answers = hardmax.classify([])
    assert answers.to_frame().columns.tolist() == ["text", *RESULT_COLUMNS]
    assert answers.to_frame(text=False).columns.tolist() == [*RESULT_COLUMNS]


def test_frame_has_label_score_and_probabilities_where_the_model_abstains() -> None:
    probs = {"negative": 0.45, "positive": 0.55}
    abstaining = {**ENTRY, "score": 0.55, "probs": probs, "abstain_reason": "low_confidence"}
    with client(Server(respond(ENTRY, abstaining), respond(ENTRY))) as hardmax:
        answers = hardmax.classify(["a", "b", 7, "c"], errors="keep")
    frame = answers.to_frame()
    assert frame.columns.tolist() == ["text", *RESULT_COLUMNS, "p(negative)", "p(positive)"]
    assert frame.loc[1, ["label", "score", "abstain_reason"]].tolist() == ["positive", 0.55, "low_confidence"]
    assert frame["p(positive)"].tolist()[:2] == [0.9, 0.55]
    assert frame["hardmax_error"].tolist()[2] == "this should be a string, not int"
    assert frame.loc[2, ["label", "score", "p(positive)"]].isna().all()
    assert (answers.abstained, answers[1].verdict) == (1, "positive 55.0% (abstains: low_confidence)")
    assert repr(answers) == "<4 answers by m: 3 positive, 1 no answer (1 abstained)>"


def leader(word: str, contribution: Any) -> dict[str, Any]:
    fields = {"word": word, "cluster": 0, "since_layer": 0, "followers": 0, "spans": []}
    return {**fields, "contribution": contribution}


def test_row_lists_leaders_with_their_contributions_but_for_small_ones() -> None:
    leaders = [leader("lid", -2.345), leader("and", 0.01), leader("off", 0.05)]
    per_label = [leader("goal", {"positive": 1.5, "negative": 0.0})]
    with client(Server(respond({**ENTRY, "leaders": leaders}, {**ENTRY, "leaders": per_label}))) as hardmax:
        rows = [answer.row for answer in hardmax.classify(["a", "b"])]
    assert [row["leaders"] for row in rows] == [["lid -2.35", "off +0.05"], ["goal +1.50"]]


def test_progress_of_a_long_list_is_printed_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardmax.progress.QUIET_S", 0.0)
    with client() as hardmax:
        hardmax.classify(["a"] * 4, batch_size=2)
        assert capsys.readouterr().err == ""
        hardmax.classify(["a"] * 4, batch_size=2, progress=True)
    assert capsys.readouterr().err.startswith("2 of 4 texts, ")


# ---------------------------------------- SHAP

WORDS = [
    {
        "word": text, "spans": [], "cluster": 0, "leader": True, "contribution": x, "position": [],
        "final_position": [],
    }
    for text, x in (("superb", 2.0), ("film", -0.5))
]  # fmt: skip
CLUSTER = {
    "id": 0, "kind": "tie", "leaders": ["superb", "film"], "words": [], "size": 2, "share": 1.0,
    "contribution": 1.5,
}  # fmt: skip


def test_shap_explanation_adds_up_to_the_logit() -> None:
    entry = {**ENTRY, "logit": 1.6, "bias": 0.1, "clusters": [CLUSTER]}
    with client(Server(respond(entry), respond({**entry, "words": WORDS}), respond(ENTRY))) as hardmax:
        clusters, words = hardmax.classify("a").to_shap(), hardmax.classify("a", explain="full").to_shap()
        with pytest.raises(InvalidInput, match='classify with explain="leaders" or "full"'):
            hardmax.classify("a").to_shap()
        with pytest.raises(InvalidInput, match="no label 'other'; there are negative, positive"):
            hardmax.classify("a").to_shap("other")
    assert (words.data.tolist(), words.values.tolist()) == (["superb", "film"], [2.0, -0.5])
    assert words.feature_names == ["word 1", "word 2"]
    assert (clusters.data.tolist(), clusters.values.tolist()) == (["superb, film"], [1.5])
    for explanation in (clusters, words):
        assert explanation.base_values + explanation.values.sum() == pytest.approx(1.6)


def test_shap_explanation_of_several_logits_is_of_one_label() -> None:
    numbers = {"negative": -1.0, "positive": 1.0}
    entry = {**ENTRY, "logit": numbers, "bias": {"negative": 0.0, "positive": 0.5}}
    entry["words"] = [WORDS[0] | {"contribution": {"negative": -1.0, "positive": 0.5}}]
    with client(Server(then=lambda request: respond(entry))) as hardmax:
        answer = hardmax.classify("a", explain="full")
    assert (answer.to_shap().values.tolist(), answer.to_shap().base_values) == ([0.5], 0.5)
    assert answer.to_shap("negative").values.tolist() == [-1.0]
    with pytest.raises(InvalidInput, match="no label 'other'; there are negative, positive"):
        answer.to_shap("other")


# ---------------------------------------- deadlines and bounds


class Dripping:
    """A server that sends a byte at a time, without end: of the head or of the body."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                Thread(target=self._drip, args=[connection], daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(self._head)
            while True:
                time.sleep(0.02)
                connection.sendall(b"1")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=[b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def dripping(request: pytest.FixtureRequest) -> Iterator[Dripping]:
    server = Dripping(request.param)
    yield server
    server.close()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_client_waits_no_longer_than_its_timeout_for_a_server_that_drips(
    kind: Any, dripping: Dripping
) -> None:
    async def scenario() -> None:
        async with AsyncClient(dripping.url, timeout_s=0.5) as hardmax:
            await hardmax.classify("good")

    def call() -> None:
        if kind is AsyncClient:
            asyncio.run(scenario())
        else:
            Client(dripping.url, timeout_s=0.5).classify("good")

    started = time.monotonic()
    with pytest.raises(ConnectionFailed, match=r"within 0\.5 s"):
        call()
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("dripping", [b"HTTP/1.1 500 X\r\nContent-Length: 9999\r\n\r\n"], indirect=True)
def test_stream_waits_no_longer_than_its_timeout_for_an_error_that_drips(dripping: Dripping) -> None:
    started = time.monotonic()
    with (
        Client(dripping.url, timeout_s=0.5) as hardmax,
        pytest.raises(ConnectionFailed, match=r"within 0\.5 s"),
    ):
        list(hardmax.stream_dynamics([[1.0]]))
    assert time.monotonic() - started < 30


def test_client_does_not_repeat_a_request_that_kept_the_server_busy() -> None:
    protocol, now = transport.HttpProtocol("http://test", None, timeout_s=75.0, retries=3), time.monotonic()
    for status in (429, 503):
        busy = httpx.Response(status, headers={"retry-after": "0"})
        assert protocol.pause_s(busy, 0, start_s=now, deadline=now + 60) == 0.0
        assert protocol.pause_s(busy, 0, start_s=now - 10, deadline=now + 60) is None


def test_client_does_not_wait_for_a_retry_that_comes_after_its_timeout() -> None:
    server = Server(error_response(429, "overloaded", "later"))
    server.responses[0].headers["retry-after"] = "20"
    with client(server, timeout_s=5.0) as hardmax, pytest.raises(Overloaded, match="later"):
        hardmax.classify("good")
    assert len(server.requests) == 1


def test_client_without_a_server_fails_after_retries_for_a_second() -> None:
    started = time.monotonic()
    with Client("http://me:secret@127.0.0.1:1") as hardmax, pytest.raises(ConnectionFailed) as error:
        hardmax.classify("good")
    assert str(error.value).startswith("no answer from http://127.0.0.1:1: ")
    assert 0.5 < time.monotonic() - started < 5.0
    assert str(error.value).endswith("(tried again for 1 s; is the server running?)")


def test_client_connects_again_if_a_server_is_starting() -> None:
    attempts = []

    def starting(request: httpx.Request) -> httpx.Response:
        attempts.append(request)
        if len(attempts) < 3:
            raise httpx.ConnectError("refused")
        return classify(request)

    with client(starting) as hardmax:
        assert hardmax.classify("good").logit == 4.0


@pytest.mark.parametrize("content", [b"[" + b"[]," * 100 + b"[]]", b"[" + b"1," * 300 + b"1]"])
def test_client_counts_the_values_of_an_answer_before_it_parses_them(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_RESPONSE_CONTAINERS", 100)
    monkeypatch.setattr(transport, "MAX_RESPONSE_VALUES", 200)
    monkeypatch.setattr(transport.json, "loads", lambda *parsed, **options: pytest.fail("parsed"))
    with (
        client_of(httpx.Response(200, content=content)) as hardmax,
        pytest.raises(UnexpectedAnswer, match="too many values"),
    ):
        hardmax.classify("good")
