"""Long bodies of texts are read as short ones are, in pieces that never hold up the event loop."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import stalls
from bundles import write_models
from server import Server, serving
from stalls import PROMISED_S, stall_of

from service.errors import HardmaxError, InputError, InvalidInput, MalformedInput, TooLarge
from service.http.large_json import PIECE, WHOLE
from service.http.problems import parse
from service.http.routes.classify import write_blocks
from service.http.texts import TextReader
from service.schemas.open_inference import InferRequest
from service.schemas.texts import ClassifyRequest
from service.settings import BUNDLED_MODELS, Settings

MB = 1_000_000
SETTINGS = Settings(max_client_batch_size=1000, max_text_chars=20_000)
READER = TextReader(SETTINGS)
LONG = "a superb film, " * 1000
TEXTS = [
    LONG, "short", "", "\0", "\x005", "\x00999", "\\", '"', '"' * 500, "\\" * 501, "\\u0000", "[{" * 90,
    " " * 900, "я бы сказал " * 200, "\N{GRINNING FACE}" * 200, "a\tb\r\nc", "x" * 64, "y" * 65,
    "z" * 63 + "\\", *["filler " * 40] * 600,
]  # fmt: skip


def read(model: type[Any], body: bytes) -> Any:
    return asyncio.run(READER.read(model, body))


def outcome(reading: Callable[[type[Any], bytes], Any], model: type[Any], body: bytes) -> Any:
    try:
        return reading(model, body)
    except HardmaxError as failure:
        return type(failure), failure.param


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 4, 200])
def test_long_request_is_read_as_json_reads_it(ascii_only: bool, indent: int | None) -> None:
    document = {"input": TEXTS, "model": "a\tb", "explain": "full", "trajectory": True}
    document |= {"truncate": False, "spans": "utf16"}
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    assert len(body) > WHOLE
    assert read(ClassifyRequest, body).model_dump() == document


def test_long_request_may_spell_names_and_options_with_escapes() -> None:
    text = json.dumps("b" * 200_000)
    body = f'{{"in\\u0070ut" \n: {text}, "explain":\t"fu\\u006cl", "input": ["\\ud83d\\ude00"]}}'.encode()
    request = read(ClassifyRequest, body)
    assert (request.input, request.explain) == (["\N{GRINNING FACE}"], "full")


def test_long_infer_request_is_read_as_json_reads_it() -> None:
    tensor = {
        "name": "text",
        "datatype": "BYTES",
        "shape": [len(TEXTS), 1],
        "data": [[text] for text in TEXTS],
    }
    document = {"id": "a\nb" * 50, "parameters": {"x": ["\0" * 3, {"y\n": "z\n"}]}, "inputs": [tensor]}
    body = json.dumps(document).encode()
    request = read(InferRequest, body)
    assert request == parse(InferRequest, body)
    assert (request.id, request.parameters) == (document["id"], document["parameters"])


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (b'{"input": [' + b'"a",' * 100_000 + b'"a"]}', TooLarge, None),
        (b'{"input": [' + b'"\\n",' * 100_000 + b'"a"]}', TooLarge, None),
        (b'{"input": "' + b"a" * 400_000 + b'"}', TooLarge, None),
        (b'{"input": "' + b"a" * 200_000 + b'"}', None, None),  # its characters are counted later
        (b'{"input": [' + b"1," * 200_000 + b"1]}", InvalidInput, "input[0]"),
        (b'{"input": [' + b"[]," * 200_000 + b"[]]}", InvalidInput, "input[0]"),
        (b'{"x": [' + b"[[]]," * 200_000 + b"[]]}", InvalidInput, "input"),
        (b'{"input": "a", ' + b'"input": "a",' * 40_000 + b'"x": 1}', TooLarge, None),
        (b'{"input": "a", "x": "' + b"b" * 150_000 + b'"}', InvalidInput, "x"),
        (b'{"input": "a", "model": "' + b"b" * 150_000 + b'"}', InvalidInput, "model"),
        (b'["' + b"b" * 150_000 + b'"]', InvalidInput, None),
        (b'{"input": "' + b"a" * 150_000, MalformedInput, None),
        (b'{"input": "' + b"a" * 150_000 + b"\\", MalformedInput, None),
        (b'{"input": "' + b"a" * 150_000 + b'\\ud800"}', MalformedInput, None),
        (b'{"input": "' + b"a" * 150_000 + b'\xff"}', MalformedInput, None),
        (b'{"input": "' + b"a" * 150_000 + b'\x00"}', MalformedInput, None),
        (b'{"input": ["\x000", "' + b"a" * 150_000 + b'"]}', MalformedInput, None),
        (b'{"input": "a\xff", "model": "' + b"a" * 150_000 + b'"}', MalformedInput, None),
        (b'{"input": "' + b"a" * 150_000 + b'"} "', MalformedInput, None),
        (b'{"input": "' + b"a" * 150_000 + b'" "b"}', MalformedInput, None),
        (b'{"input": "a"}' + b"a" * 400_000, MalformedInput, None),
        (b'{"input": ' + b"[" * 400_000, MalformedInput, None),
        (b'{"input": ' + b"9" * 400_000 + b"}", MalformedInput, None),
        (b"1" + b" " * 400_000 + b"2", MalformedInput, None),
        (b'{"input": "a"' + b" " * 400_000 + b"}", None, None),
    ],
)  # fmt: skip
def test_long_request_that_is_wrong_is_refused(
    body: bytes, kind: type[InputError] | None, param: str | None
) -> None:
    found = outcome(read, ClassifyRequest, body)
    assert found == (kind, param) if kind else isinstance(found, ClassifyRequest)


def test_wounded_requests_are_judged_as_json_judges_them() -> None:
    chance = random.Random(4)
    pieces = [
        b'"',
        b"\\",
        b",",
        b"[",
        b"]",
        b"{",
        b"}",
        b":",
        b" " * 70,
        b"\\u0000",
        b"0",
        b"\n",
        b"\xff",
        b"",
    ]
    whole = json.dumps({"input": [LONG, *TEXTS[:19], *["filler " * 40] * 400], "explain": "none"}).encode()
    kinds = set()
    for _ in range(300):
        start = chance.choice([chance.randrange(40), -chance.randrange(1, 40), chance.randrange(20_000)])
        start %= len(whole)
        body = whole[:start] + chance.choice(pieces) + whole[start + chance.randrange(3) :]
        assert len(body) > WHOLE
        told, expected = outcome(read, ClassifyRequest, body), outcome(parse, ClassifyRequest, body)
        assert told == expected, body[start - 40 : start + 40]
        kinds.add(type(told) if isinstance(told, ClassifyRequest) else told[0])
    assert kinds == {ClassifyRequest, MalformedInput, InvalidInput}


def test_long_request_does_not_wait_for_a_longer_one_that_came_before() -> None:
    reader = TextReader(SETTINGS)
    order: list[str] = []

    async def long(name: str, texts: list[str]) -> None:
        await reader.read(ClassifyRequest, json.dumps({"input": texts}).encode())
        order.append(name)

    async def both() -> None:
        await asyncio.gather(long("longer", [LONG] * 500), long("long", [LONG] * 20))

    asyncio.run(both())
    assert order == ["long", "longer"]


def test_long_requests_take_turns_and_leave_the_loop_to_others() -> None:
    reader = TextReader(SETTINGS)
    body = json.dumps({"input": TEXTS}).encode()
    order: list[str] = []

    async def other() -> None:
        for _ in range(5):
            order.append("other")
            await asyncio.sleep(0)

    async def long(name: str) -> None:
        await reader.read(ClassifyRequest, body)
        order.append(name)

    async def all_of_them() -> None:
        await asyncio.gather(long("first"), long("second"), other())

    asyncio.run(all_of_them())
    assert order[0] == "other"
    assert order.index("first") < order.index("second")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = write_models(tmp_path_factory.mktemp("models"))
    options = {"default_model": "tiny", "intra_op_threads": 1, "log_level": "error"}
    with serving(models, command=(stalls.__file__,), **options) as server:
        yield server


@pytest.fixture(scope="module")
def bundled() -> Iterator[Server]:
    with serving(BUNDLED_MODELS, command=(stalls.__file__,), intra_op_threads=1, log_level="error") as server:
        yield server


def filled(before: bytes, unit: bytes, after: bytes, size: int = 63 * MB) -> Callable[[], bytes]:
    """So much of a unit and commas that the body is as large as it may be."""
    return lambda: before + (unit + b",") * (size // (len(unit) + 1)) + unit + after


def tensor_of(element: bytes, count: int) -> Callable[[], bytes]:
    return lambda: (len(element).to_bytes(4, "little") + element) * count


INFER = "/v2/models/tiny/infer"
LARGE: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "tiny texts": ("/classify", filled(b'{"input":[', b'"a"', b"]}"), 413),
    "empty arrays": ("/classify", filled(b'{"x":[', b"[]", b"]}"), 422),
    "names": ("/classify", filled(b"{", b'"x":0', b"}"), 422),
    "nested arrays at once": ("/classify", filled(b'{"x":[', b"[[]]", b"]}", size=130_000), 422),
    "blanks": ("/classify", lambda: b'{"input":"superb"' + b" " * 63 * MB + b"}", 200),
    "one text": ("/classify", lambda: b'{"input":"' + b"a" * 63 * MB + b'"}', 413),
    "long texts": (
        "/classify",
        filled(b'{"explain":"none","input":[', b'"' + b'\\"a ' * 50_000 + b'"', b"]}", size=12 * MB),
        200,
    ),
    "tensors": (INFER, filled(b'{"inputs":[', b'{"name":"","datatype":"","shape":[]}', b"]}"), 422),
    "data": (INFER, filled(b'{"inputs":[{"name":"text","data":[', b"[]", b"]}]}"), 422),
    "a row": ("/control", filled(b'{"points":[[', b"1", b"]]}"), 413),
    "wishes": ("/control", filled(b'{"points":[[1,2]],"assignment":{', b'"1":0', b"}}", size=550_000), 422),
    "a sequence": ("/sequences/classify", filled(b'{"model":"scenes","sequences":[[[', b"1", b"]]]}"), 413),
    "arrays beside": ("/sequences/classify", filled(b'{"x":[', b"[[]]", b"]}", size=2 * MB), 422),
    "members before": ("/dynamics", filled(b"{", b'"x":0', b',"points":[[1,2]]}'), 422),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_body_never_holds_up_the_event_loop(server: Server, name: str) -> None:
    path, make, status = LARGE[name]
    with server.client(headers={"content-type": "application/json"}) as client:
        stall = stall_of(server, client, path, make(), status)
    assert stall["turn_s"] < PROMISED_S, stall
    assert stall["step_s"] < PROMISED_S, stall


@pytest.mark.parametrize(
    ("element", "count", "said", "status"),
    [(b"", 15 * MB, 1, 422), ("я".encode() * 31 * MB, 1, 1, 413), (b"superb, " * 20_000, 25, 25, 200)],
    ids=["empty", "one", "long"],
)
def test_large_bytes_tensor_never_holds_up_the_event_loop(
    server: Server, element: bytes, count: int, said: int, status: int
) -> None:
    tensor = tensor_of(element, count)()
    given = {
        "name": "text",
        "datatype": "BYTES",
        "shape": [said],
        "parameters": {"binary_data_size": len(tensor)},
    }
    head = json.dumps({"inputs": [given]}).encode()
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    with server.client(headers=headers) as client:
        stall = stall_of(server, client, INFER, head + tensor, status)
    assert stall["turn_s"] < PROMISED_S, stall
    assert stall["step_s"] < PROMISED_S, stall


def test_shape_of_many_dimensions_is_refused_unmultiplied(server: Server) -> None:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [2**31] * 33, "data": ["a"]}
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        answer = client.post(INFER, json={"inputs": [tensor]})
    assert (answer.status_code, answer.json()["error"]) == (422, "the shape has more than 32 dimensions")


@pytest.mark.parametrize(("count", "pieces"), [(1, 1), (31, 1), (32, 1), (33, 2), (1000, 32)])
def test_answer_in_blocks_is_the_answer(count: int, pieces: int) -> None:
    data = [{"index": i, "label": "positive", "words": [{"text": "a" * 2000}]} for i in range(count)]
    answer = {"id": "me", "usage": {"texts": count}, "data": data}
    expected = json.dumps(answer)
    blocks = asyncio.run(write_blocks(answer))
    assert json.loads(b"".join(blocks)) == json.loads(expected)
    assert max(map(len, blocks)) < 2 * PIECE
    assert len(blocks) == pieces
    assert not any(each["words"] for each in data)  # let go of


def test_long_answer_never_holds_up_the_event_loop(bundled: Server) -> None:
    """All words of thirty long texts: 11 MB."""
    spelt = json.loads((BUNDLED_MODELS / "sentiment" / "words.json").read_text())["words"]
    words = [word for word in spelt if word.isalpha()]
    texts = [" ".join(random.Random(i).choices(words, k=2000)) for i in range(30)]
    body = json.dumps({"input": texts, "explain": "full"}).encode()
    with bundled.client(headers={"content-type": "application/json"}) as client:
        stall = stall_of(bundled, client, "/classify", body, 200)
        answer = client.post("/classify", content=body)
    assert stall["turn_s"] < PROMISED_S, stall
    assert [each["index"] for each in answer.json()["data"]] == list(range(30))
    assert len(answer.content) > 10 * MB
