"""Every route over a real socket: answers by value, refusals by status, type and place."""

from __future__ import annotations

import io
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from bundles import write_sentiment
from server import Server, serving

from model_export.exact import make, write
from model_export.exact_data import make_examples
from service import __version__

DYNAMICS = Path(__file__).parent.parent / "service/models/dynamics"
JSON = {"content-type": "application/json"}
TRIANGLE = [
    [1, 1], [0.5, -0.5], [-1, -1], [0.3, -0.2], [0.1, -0.2],
    [0.8776, 0.9785], [0.0989, 0.4935], [-0.2030, -0.9591], [-0.3824, -0.9242],
]  # fmt: skip


def write_models(folder: Path) -> Path:
    """The models that these tests know by heart: tiny (default), dynamics and scenes (sequences)."""
    write_sentiment(folder)
    shutil.copytree(DYNAMICS, folder / "dynamics")
    rows = [([[0, 0], [1, 1]], "calm"), ([[0, 0], [5, 5]], "storm"), ([[2, 1]], "calm")]
    examples = make_examples([{"sequence": sequence, "label": label} for sequence, label in rows])
    write(make(examples), folder / "scenes", description="Scenes.", licence="Apache-2.0")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    limits = {"max_text_chars": 400, "max_client_batch_size": 8, "max_points": 300_000, "max_dimension": 4}
    with serving(models, default_model="tiny", payload_limit_mb=40, max_layers=500, **limits) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def refusal(response: httpx.Response) -> tuple[int, str, str | None]:
    """Status, type and param of a refusal, whose shape is checked."""
    error = response.json()["error"]
    assert set(error) == {"type", "message", "param", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    assert error["message"]
    return response.status_code, error["type"], error["param"]


# --- /classify


def test_classify_answers_one_text_with_its_exact_reason(client: httpx.Client) -> None:
    answer = client.post("/classify", json={"input": "The film, superb film!"}).json()
    assert answer["model"] == "tiny"
    assert answer["usage"] == {"texts": 1, "tokens": 5}
    (one,) = answer["data"]
    assert (one["index"], one["label"], one["truncated"]) == (0, "positive", False)
    # Weights: the 2, two films 1 each, superb 1; superb is at 4 along the readout, the others at 0.
    assert one["leaders"] == [
        {"word": "superb", "cluster": 0, "since_layer": 0, "followers": 0, "contribution": 0.8,
         "spans": [[10, 16]]},
        {"word": "the", "cluster": 1, "since_layer": 0, "followers": 1, "contribution": 0, "spans": [[0, 3]]},
    ]  # fmt: skip
    assert [(cluster["words"], cluster["contribution"]) for cluster in one["clusters"]] == [
        (["superb"], 0.8), (["the", "film"], 0),
    ]  # fmt: skip
    assert (one["bias"], one["logit"]) == (0.5, 1.3)
    assert one["probs"]["positive"] == one["score"] == pytest.approx(1 / (1 + np.exp(-1.3)), abs=1e-6)


def test_classify_answers_a_list_as_it_answers_its_texts_alone(client: httpx.Client) -> None:
    texts = ["superb", "awful film", "the film was not good", "a waste of time", "superb superb superb"]
    together = client.post("/classify", json={"input": texts}).json()["data"]
    for index, text in enumerate(texts):
        (alone,) = client.post("/classify", json={"input": text}).json()["data"]
        assert together[index]["index"] == index
        assert together[index]["label"] == alone["label"]
        assert together[index]["logit"] == pytest.approx(alone["logit"], abs=1e-5)
        assert together[index]["leaders"] == alone["leaders"]


def test_classify_explains_as_much_as_it_is_asked_for(client: httpx.Client) -> None:
    def ask(**options: Any) -> dict[str, Any]:
        body = {"input": "the superb film", **options}
        return dict(client.post("/classify", json=body).json()["data"][0])

    assert not {"leaders", "clusters", "words"} & set(ask(explain="none"))
    assert "words" not in ask(explain="leaders")
    full = ask(explain="full", trajectory=True)
    assert [word["text"] for word in full["words"]] == ["the", "superb", "film"]
    assert [word["spans"] for word in full["words"]] == [[[0, 3]], [[4, 10]], [[11, 15]]]
    assert np.shape(full["trajectory"]) == (3, 3, 2)
    assert full["trajectory"][0] == [word["start"] for word in full["words"]]
    assert full["logit"] == pytest.approx(
        full["bias"] + sum(word["contribution"] for word in full["words"]), abs=1e-4
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (422, "invalid_input", "input")),
        ({"input": 7}, (422, "invalid_input", "input")),
        ({"input": ["good", 7]}, (422, "invalid_input", "input[1]")),
        ({"input": []}, (422, "invalid_input", "input")),
        ({"input": ""}, (422, "invalid_input", "input")),
        ({"input": ["good", " \n"]}, (422, "invalid_input", "input[1]")),
        ({"input": "good", "explain": "much"}, (422, "invalid_input", "explain")),
        ({"input": "good", "trajectory": True}, (422, "invalid_input", "trajectory")),
        ({"input": "good", "truncate": "no"}, (422, "invalid_input", "truncate")),
        ({"input": "good", "explian": "full"}, (422, "invalid_input", "explian")),
        ({"input": "good", "model": "nobody"}, (404, "not_found", "model")),
        ({"input": "good", "model": "dynamics"}, (404, "not_found", "model")),
        ({"input": ["good"] * 9}, (413, "too_large", "input")),
        ({"input": ["good", "x" * 401]}, (413, "too_large", "input[1]")),
        (["good"], (422, "invalid_input", None)),
        ("good", (422, "invalid_input", None)),
    ],
)
def test_classify_refuses_by_name(client: httpx.Client, body: object, expected: tuple[Any, ...]) -> None:
    assert refusal(client.post("/classify", json=body)) == expected


def test_classify_refuses_a_long_text_only_where_it_may_not_be_cut(models: Path, tmp_path: Path) -> None:
    write_sentiment(tmp_path, max_length=3)
    with serving(tmp_path, default_model="tiny") as server, server.client() as client:
        cut = client.post("/classify", json={"input": "good good good awful"}).json()["data"][0]
        assert (cut["truncated"], cut["tokens"], cut["label"]) == (True, 3, "positive")
        body = {"input": ["good", "good good good awful"], "truncate": False}
        assert refusal(client.post("/classify", json=body)) == (413, "too_large", "input[1]")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"input": "a"} x',
        b"\xef\xbb\xbf" + b'{"input": "good"}',
        '{"input": "good"}'.encode("utf-16"),
        b'{"input": "\xff"}',
        b'{"input": "\\ud800"}',
        b'{"input": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"input": ' + b"9" * 10_000 + b"}",
        b"\x00\x01\x02",
    ],
)
@pytest.mark.parametrize("path", ["/classify", "/dynamics", "/sequences/classify", "/control"])
def test_routes_refuse_what_is_not_json(client: httpx.Client, path: str, body: bytes) -> None:
    status, kind, _ = refusal(client.post(path, content=body, headers=JSON))
    assert (status, kind) == (400, "malformed_input")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_classify_refuses_numbers_for_texts(client: httpx.Client, value: str) -> None:
    body = f'{{"input": {value}}}'
    assert refusal(client.post("/classify", content=body, headers=JSON)) == (422, "invalid_input", "input")


def test_classify_takes_the_last_of_two_equal_names_as_json_parsers_do(client: httpx.Client) -> None:
    body = '{"input": "awful", "input": "superb"}'
    answer = client.post("/classify", content=body, headers=JSON).json()
    assert answer["data"][0]["label"] == "positive"


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_classify_refuses_other_media_types(client: httpx.Client, media_type: str) -> None:
    response = client.post("/classify", content=b'{"input": "x"}', headers={"content-type": media_type})
    assert refusal(response) == (415, "unsupported_media_type", None)


def test_classify_takes_json_by_any_of_its_names(client: httpx.Client) -> None:
    for headers in ({}, JSON, {"content-type": "Application/JSON; charset=UTF-8"}):
        assert client.post("/classify", content=b'{"input": "superb"}', headers=headers).status_code == 200


def test_classify_takes_a_chunked_body(client: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"input": '
        yield b'"superb"}'

    answer = client.post("/classify", content=pieces(), headers=JSON)
    assert answer.json()["data"][0]["label"] == "positive"


# --- /dynamics


def test_dynamics_answers_the_papers_triangle(client: httpx.Client) -> None:
    answer = client.post("/dynamics", json={"points": TRIANGLE, "alpha": 0.5}).json()
    assert (answer["n"], answer["d"], answer["alpha"], answer["status"]) == (9, 2, 0.5, "certified")
    assert [leader["index"] for leader in answer["leaders"]] == [0, 1, 2]
    assert [leader["point"] for leader in answer["leaders"]] == [[1, 1], [0.5, -0.5], [-1, -1]]
    assert len(answer["assignment"]) == 9
    assert sum(cluster["size"] for cluster in answer["clusters"]) == 9
    assert set(answer) & {"limits", "trajectory", "polytope"} == set()


def test_dynamics_includes_what_it_is_asked_for(client: httpx.Client) -> None:
    body = {
        "points": TRIANGLE, "alpha": 0.5, "stop": "never", "max_layers": 4, "trajectory_every": 2,
        "include": ["limits", "trajectory", "polytope"],
    }  # fmt: skip
    answer = client.post("/dynamics", json=body).json()
    assert answer["layers"] == 4
    assert "assignment" not in answer
    assert sorted(answer["polytope"]["vertices"]) == [0, 1, 2]
    assert answer["trajectory"]["layers"] == [0, 2, 4]
    assert answer["trajectory"]["points"][0] == TRIANGLE
    assert answer["limits"][0] == [1, 1]


def test_dynamics_takes_and_gives_numpy_arrays(client: httpx.Client) -> None:
    body = io.BytesIO()
    np.save(body, np.array(TRIANGLE))
    query = {"alpha": "0.5", "include": "assignment,limits", "A": "[[1, 0], [0, 1]]"}
    response = client.post(
        "/dynamics", params=query, content=body.getvalue(),
        headers={"content-type": "application/x-npy", "accept": "application/x-npz"},
    )  # fmt: skip
    assert response.headers["content-type"] == "application/x-npz"
    with np.load(io.BytesIO(response.content)) as arrays:
        plain = client.post("/dynamics", json={"points": TRIANGLE, "alpha": 0.5, "include": ["limits"]})
        assert arrays["leaders"].tolist() == [0, 1, 2]
        assert arrays["limits"].tolist() == plain.json()["limits"]
        assert json.loads(str(arrays["summary"]))["status"] == "certified"
    fortran = io.BytesIO()
    np.save(fortran, np.asfortranarray(np.array(TRIANGLE, np.float32)))
    again = client.post(
        "/dynamics?alpha=0.5", content=fortran.getvalue(), headers={"content-type": "application/x-npy"}
    )
    assert [leader["index"] for leader in again.json()["leaders"]] == [0, 1, 2]


def test_dynamics_streams_its_layers_and_the_result_last(client: httpx.Client) -> None:
    body = {"points": TRIANGLE, "alpha": 0.5}
    with client.stream("POST", "/dynamics", json=body, headers={"accept": "application/x-ndjson"}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [set(line) for line in lines[:-1]] == [{"progress"}] * (len(lines) - 1)
    assert lines[-2]["progress"]["leaders"] == 3
    whole = client.post("/dynamics", json=body).json()
    assert {**lines[-1], "id": 0} == {**whole, "id": 0}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (422, "invalid_input", "points")),
        ({"points": []}, (422, "invalid_input", "points")),
        ({"points": [[]]}, (422, "invalid_input", "points[0]")),
        ({"points": [[1, 2], [3]]}, (422, "invalid_input", "points[1]")),
        ({"points": [[1, 2], 3]}, (422, "invalid_input", "points[1]")),
        ({"points": [[1, 2], [3, "4"]]}, (422, "invalid_input", "points[1][1]")),
        ({"points": [[1, True]]}, (422, "invalid_input", "points[0][1]")),
        ({"points": [[1, None]]}, (422, "invalid_input", "points[0][1]")),
        ({"points": [[0, 0], [1, 1]]}, (422, "invalid_input", "points[0]")),
        ({"points": [[10**400, 1]]}, (422, "invalid_input", "points")),
        ({"points": "[[1]]"}, (422, "invalid_input", "points")),
        ({"points": [[1, 1]], "alpha": 0}, (422, "invalid_input", "alpha")),
        ({"points": [[1, 1]], "alpha": -1}, (422, "invalid_input", "alpha")),
        ({"points": [[1, 1]], "A": [[1, 0], [0, -1]]}, (422, "invalid_input", "A")),
        ({"points": [[1, 1]], "A": [[1, 2], [0, 1]]}, (422, "invalid_input", "A")),
        ({"points": [[1, 1]], "A": [[1]]}, (422, "invalid_input", "A")),
        ({"points": [[1, 1]], "stop": "soon"}, (422, "invalid_input", "stop")),
        ({"points": [[1, 1]], "max_layers": 0}, (422, "invalid_input", "max_layers")),
        ({"points": [[1, 1]], "max_layers": 501}, (413, "too_large", "max_layers")),
        ({"points": [[1, 1]], "include": ["all"]}, (422, "invalid_input", "include[0]")),
        ({"points": [[1, 1]], "colour": "red"}, (422, "invalid_input", "colour")),
        ({"points": [[1, 1, 1, 1, 1]]}, (413, "too_large", "points")),
    ],
)
def test_dynamics_refuses_by_name(client: httpx.Client, body: object, expected: tuple[Any, ...]) -> None:
    assert refusal(client.post("/dynamics", json=body)) == expected


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_dynamics_refuses_numbers_that_are_none(client: httpx.Client, value: str) -> None:
    body = f'{{"points": [[1, 2], [3, {value}]]}}'
    response = client.post("/dynamics", content=body, headers=JSON)
    assert refusal(response) == (422, "invalid_input", "points[1][1]")


def test_dynamics_refuses_more_points_than_it_may_take(client: httpx.Client) -> None:
    rows = ",".join(["[1,2]"] * 300_001)
    response = client.post("/dynamics", content=f'{{"points": [{rows}]}}', headers=JSON)
    assert refusal(response) == (413, "too_large", "points")
    assert "300000" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (400, "malformed_input", None)),
        (b"\x93NUMPY\x09\x00", (400, "malformed_input", None)),
        (b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'shape': (99, 2)}", (400, "malformed_input", None)),
    ],
)  # fmt: skip
def test_dynamics_refuses_broken_npy(client: httpx.Client, body: bytes, expected: tuple[Any, ...]) -> None:
    response = client.post("/dynamics", content=body, headers={"content-type": "application/x-npy"})
    assert refusal(response) == expected


def test_dynamics_believes_an_npy_header_only_as_far_as_bytes_follow(client: httpx.Client) -> None:
    def save(array: Any) -> bytes:
        body = io.BytesIO()
        np.save(body, array)
        return body.getvalue()

    def post(body: bytes) -> tuple[int, str, str | None]:
        headers = {"content-type": "application/x-npy"}
        return refusal(client.post("/dynamics", content=body, headers=headers))

    whole = save(np.ones((3, 2)))
    assert post(whole[:-1]) == (400, "malformed_input", None)
    assert post(whole + b"x") == (400, "malformed_input", None)
    assert post(save(np.ones(3))) == (422, "invalid_input", "points")
    assert post(save(np.array([["a", "b"]]))) == (415, "unsupported_media_type", "points")
    assert post(save(np.array([[1.0, np.nan]]))) == (422, "invalid_input", "points[0][1]")
    assert post(save(np.ones((2, 5)))) == (413, "too_large", "points")
    huge = whole.replace(b"(3, 2)", b"(300000, 4)").replace(b" " * 6 + b"\n", b"\n", 1)
    assert post(huge)[0] == 400


# --- /sequences/classify, /control


def test_sequences_are_labelled_exactly(client: httpx.Client) -> None:
    body = {"model": "scenes", "sequences": [[[0, 0], [5, 5]], [[2, 1]], [[1, 1], [0, 0]]]}
    answer = client.post("/sequences/classify", json=body).json()
    assert answer["model"] == "scenes"
    assert [each["label"] for each in answer["data"]] == ["storm", "calm", "calm"]
    assert [each["index"] for each in answer["data"]] == [0, 1, 2]
    assert all(each["margin"] > 0 for each in answer["data"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"sequences": [[[0, 0]]]}, (422, "invalid_input", "model")),
        ({"model": "tiny", "sequences": [[[0, 0]]]}, (404, "not_found", "model")),
        ({"model": "scenes"}, (422, "invalid_input", "sequences")),
        ({"model": "scenes", "sequences": []}, (422, "invalid_input", "sequences")),
        ({"model": "scenes", "sequences": [[[0, 0]], []]}, (422, "invalid_input", "sequences[1]")),
        ({"model": "scenes", "sequences": [[[0, 0], [1]]]}, (422, "invalid_input", "sequences[0][1]")),
        ({"model": "scenes", "sequences": [[[0, 0, 0]]]}, (422, "invalid_input", "sequences[0]")),
        ({"model": "scenes", "sequences": [[[0, 0]]] * 9}, (413, "too_large", "sequences")),
    ],
)
def test_sequences_refuse_by_name(client: httpx.Client, body: object, expected: tuple[Any, ...]) -> None:
    status, kind, param = refusal(client.post("/sequences/classify", json=body))
    assert (status, kind) == expected[:2]
    assert (param or "").startswith(str(expected[2]))


def test_control_finds_the_matrix_that_makes_a_wish_true(client: httpx.Client) -> None:
    pytest.importorskip("clarabel")
    points = [[1.0, 0.2], [0.9, 0.8], [-0.6, 1.0], [0.2, -1.0]]
    answer = client.post("/control", json={"points": points, "leaders": [0, 2]}).json()
    assert answer["feasible"] is True
    assert answer["margin"] > 0
    again = client.post("/dynamics", json={"points": points, "A": answer["A"]}).json()
    assert {0, 2} <= {leader["index"] for leader in again["leaders"]}
    assert [each["index"] for each in answer["dynamics"]["leaders"]] == [
        each["index"] for each in again["leaders"]
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"points": [[1, 0], [0, 1]]},
        {"points": [[1, 0], [0, 1]], "leaders": [0], "assignment": {"0": 1}},
        {"points": [[1, 0], [0, 1]], "leaders": [7]},
        {"points": [[1, 0], [0, 1]], "assignment": {"x": 1}},
        {"points": [[1, 0], [0, 1]], "assignment": {"0": 9}},
        {"leaders": [0]},
    ],
)
def test_control_refuses_what_is_no_wish(client: httpx.Client, body: object) -> None:
    pytest.importorskip("clarabel")
    assert refusal(client.post("/control", json=body))[:2] == (422, "invalid_input")


# --- operations


def test_operations_answer(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    info = client.get("/info").json()
    assert (info["name"], info["version"], info["provider"]) == ("hardmax", __version__, "cpu")
    assert sorted(info["models"]) == ["dynamics", "scenes", "tiny"]
    assert info["limits"]["max_points"] == 300_000
    cards = {card["name"]: card for card in client.get("/models").json()["models"]}
    assert {name: (card["kind"], card["default"]) for name, card in cards.items()} == {
        "dynamics": ("dynamics", False), "scenes": ("sequences", False), "tiny": ("sentiment", True),
    }  # fmt: skip
    assert client.get("/models/tiny").json() == cards["tiny"]
    assert refusal(client.get("/models/nobody")) == (404, "not_found", "name")


def test_metrics_count_requests_by_route_and_status(client: httpx.Client) -> None:
    def count(line: str) -> float:
        text = client.get("/metrics").text
        return sum(float(each.split()[-1]) for each in text.splitlines() if each.startswith(line))

    good = 'hardmax_requests_total{method="POST",route="/classify",status="200"}'
    bad = 'hardmax_failures_total{reason="unsupported_media_type"}'
    before = count(good), count(bad), count("hardmax_batch_size_sum")
    client.post("/classify", json={"input": ["superb", "awful"]})
    client.post("/classify", content=b"x", headers={"content-type": "text/plain"})
    assert (count(good), count(bad), count("hardmax_batch_size_sum")) == (
        before[0] + 1, before[1] + 1, before[2] + 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/nowhere", (404, "not_found", None)),
        ("POST", "/nowhere", (404, "not_found", None)),
        ("GET", "/classify", (405, "method_not_allowed", None)),
        ("DELETE", "/models/tiny", (405, "method_not_allowed", None)),
        ("POST", "/health", (405, "method_not_allowed", None)),
        ("GET", "/web/../app.py", (404, "not_found", None)),
        ("GET", "/web/%2e%2e/app.py", (404, "not_found", None)),
    ],
)
def test_routes_that_are_none_are_refused_in_the_one_shape(
    client: httpx.Client, method: str, path: str, expected: tuple[Any, ...]
) -> None:
    assert refusal(client.request(method, path)) == expected


def test_answers_carry_the_callers_request_id_if_it_is_sane(client: httpx.Client) -> None:
    sane = client.get("/health", headers={"x-request-id": "trace-1.2:3_4"})
    assert sane.headers["x-request-id"] == "trace-1.2:3_4"
    for strange in ("a b", "x" * 129, "é".encode(), "<script>"):
        given = client.get("/health", headers={"x-request-id": strange}).headers["x-request-id"]
        assert len(given) == 24
        assert given.isalnum()
    assert (
        client.post("/classify", json={"input": "good"}, headers={"x-request-id": "me"}).json()["id"] == "me"
    )


def test_answers_carry_security_headers(client: httpx.Client) -> None:
    for path in ("/health", "/nowhere", "/"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_page_is_answered_compressed_and_with_an_etag(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-encoding"] == "gzip"
    assert page.text.lstrip().lower().startswith("<!doctype html>")
    again = client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.head("/").headers["etag"] == page.headers["etag"]


# --- bodies that lie


def raw(server: Server, request: bytes) -> bytes:
    """Send bytes as they are, and read until the server closes or has answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_body_over_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    head = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head + b"content-length: 999999999999\r\nexpect: 100-continue\r\n\r\n")
        answer = b""
        while b"PAYLOAD_LIMIT_MB" not in answer:
            piece = connection.recv(65536)
            assert piece, answer
            answer += piece
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_chunked_body_over_the_limit_is_refused_while_it_comes(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(50):
            yield b" " * 1_000_000

    with server.client() as client:
        assert refusal(client.post("/classify", content=pieces(), headers=JSON)) == (413, "too_large", None)
        assert client.get("/health").status_code == 200


def test_expect_100_continue_is_answered(server: Server) -> None:
    body = b'{"input": "superb"}'
    head = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head + b"content-length: %d\r\nexpect: 100-continue\r\n\r\n" % len(body))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_what_is_not_http_is_refused_in_the_one_shape(server: Server) -> None:
    answer = raw(server, b"NONSENSE\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["type"] == "malformed_input"


def test_body_that_ends_early_leaves_nothing_behind(server: Server) -> None:
    for _ in range(20):
        head = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n"
        raw(server, head + b'{"input": "good')
    with server.client() as client:
        metrics = client.get("/metrics").text
        assert client.post("/classify", json={"input": "superb"}).status_code == 200
    assert 'route="/classify",status="499"' in metrics


def test_no_text_of_a_user_is_logged(server: Server, client: httpx.Client) -> None:
    secret = "xyzzyplugh"
    client.post("/classify", json={"input": secret})
    client.post("/classify", json={"input": [secret], secret: 1})
    client.post("/classify", content=f'{{"input": "{secret}'.encode(), headers=JSON)
    client.get(f"/{secret}")
    client.post(f"/dynamics?{secret}=1", json={"points": [[1, 1]]})
    assert secret not in server.output
