"""Exact answers to texts, clouds, control requests and sequences, as rows of `answers/*.csv`.

A row has the main values, and digests of the others. Digests are computed of values without field names, so
that renaming a field changes no row.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from operator import mul
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from tests.contract import sentences
from tests.contract.application import SCENES

FOLDER = Path(__file__).parent / "answers"
BATCH = 50
N_CLOUDS, N_CONTROL_REQUESTS, N_SEQUENCES = 100, 40, 40
DIGITS = 12  # of the numbers of clouds: further ones depend on the processor
Row = list[str]


def digest(value: Any) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:12]


def round_numbers(value: Any) -> Any:
    """Return a JSON value with its numbers to twelve digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") + 0.0
    return [round_numbers(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------- texts


def text_rows(client: TestClient) -> Iterator[Row]:
    """Return the label, the logit and digests of the whole explanation of every text."""
    yield ["text", "label", "abstains", "logit", "words", "leaders", "clusters"]
    texts = sentences.texts()
    for start in range(0, len(texts), BATCH):
        body = {"input": texts[start : start + BATCH], "explain": "full", "trajectory": True}
        response = client.post("/classify", json=body)
        assert response.status_code == 200, response.text
        for index, answer in enumerate(response.json()["data"], start=start):
            yield [
                str(index),
                answer["label"],
                str(answer["abstain_reason"] or ""),
                str(answer["logit"]),
                digest(
                    [answer["bias"], answer["trajectory"], [word_values(word) for word in answer["words"]]]
                ),
                digest([leader_values(leader) for leader in answer["leaders"]]),
                digest([cluster_values(cluster) for cluster in answer["clusters"]]),
            ]


def word_values(word: dict[str, Any]) -> list[Any]:
    """Return the values of a word."""
    names = ("word", "spans", "cluster", "leader", "contribution", "position", "final_position", "attends_to")
    return [word[name] for name in names] + [word.get("read_as")]


def leader_values(leader: dict[str, Any]) -> list[Any]:
    """Return the values of a leader, with the words that it has read."""
    names = ("word", "cluster", "contribution", "since_layer", "followers", "spans")
    read = [[item[name] for name in ("word", "spans", "layer")] for item in leader["read"]]
    return [leader[name] for name in names] + [read]


def cluster_values(cluster: dict[str, Any]) -> list[Any]:
    """Return the values of a cluster."""
    names = ("id", "kind", "leaders", "words", "size", "share", "contribution")
    return [cluster[name] for name in names]


# ---------------------------------------- clouds, control, sequences


def cloud_request(index: int) -> dict[str, Any]:
    """Return a request for a cloud of random points; every third is on a grid, where ties are common."""
    rng = random.Random(index)
    count, dimension = rng.choice([1, 3, 8, 20, 60]), rng.choice([1, 2, 2, 3, 5])
    draw: Callable[[], float] = (
        (lambda: rng.randint(-3, 3)) if index % 3 == 0 else (lambda: rng.uniform(-2, 2))
    )
    points = [[draw() for _ in range(dimension)] for _ in range(count)]
    request: dict[str, Any] = {
        "points": [point if any(point) else [1] * dimension for point in points],  # a zero is refused
        "alpha": rng.choice([0.1, 0.5, 1.0, 3.0]),
        "include": ["assignment", "limits", "polytope", "temperature"],
    }
    if index % 4 == 0:
        square = [[rng.uniform(-1, 1) for _ in range(dimension)] for _ in range(dimension)]
        request["A"] = [[sum(map(mul, a, b)) + (a is b) for b in square] for a in square]
    return request


def cloud_rows(client: TestClient) -> Iterator[Row]:
    """Return the clusters of every cloud."""
    yield ["cloud", "status", "layers", "certified", "leaders", "clusters", "margin", "structure", "limits"]
    for index in range(N_CLOUDS):
        response = client.post("/dynamics", json=cloud_request(index))
        assert response.status_code == 200, response.text
        answer = response.json()
        leaders = [
            [item[name] for name in ("index", "since_layer", "followers", "cluster")]
            for item in answer["leaders"]
        ]
        clusters = [[item[name] for name in ("id", "kind", "leaders", "size")] for item in answer["clusters"]]
        structure = [leaders, clusters, answer["assignment"], answer["polytope"]["vertices"]]
        yield [
            str(index),
            answer["status"],
            str(answer["layers"]),
            str(answer["certified_layer"]),
            str(len(leaders)),
            str(len(clusters)),
            str(round_numbers(answer["margin"])),
            digest(structure),
            digest(round_numbers(answer["limits"])),
        ]


def control_request(index: int) -> dict[str, Any]:
    """Return a request to /control: one to three leaders of a random cloud, or an assignment."""
    rng = random.Random(1000 + index)
    count, dimension = rng.choice([3, 5, 8]), rng.choice([2, 2, 3])
    points = [[rng.uniform(-1, 1) for _ in range(dimension)] for _ in range(count)]
    leaders = rng.sample(range(count), rng.choice([1, 2, 2, 3]))
    if index % 3:
        return {"points": points, "leaders": leaders}
    return {"points": points, "assignment": {str(i): i if i in leaders else leaders[0] for i in range(count)}}


def control_rows(client: TestClient) -> Iterator[Row]:
    """Return the result of every request to /control, without the matrix, which is not unique."""
    yield ["wish", "feasible", "certified", "leaders"]
    for index in range(N_CONTROL_REQUESTS):
        response = client.post("/control", json=control_request(index))
        assert response.status_code == 200, response.text
        answer = response.json()
        run = answer["dynamics"]
        leaders = " ".join(str(item["index"]) for item in run["leaders"]) if run else ""
        yield [str(index), str(answer["feasible"]), "certificate" if answer["certificate"] else "", leaders]


def draw_sequence(index: int) -> list[list[float]]:
    """Return a sequence of one to three points."""
    rng = random.Random(2000 + index)
    return [[rng.uniform(-1, 6), rng.uniform(-1, 6)] for _ in range(rng.randint(1, 3))]


def sequence_rows(client: TestClient) -> Iterator[Row]:
    """Return the label of every sequence."""
    yield ["sequence", "label", "margin", "leader"]
    body = {"model": SCENES, "sequences": [draw_sequence(index) for index in range(N_SEQUENCES)]}
    response = client.post("/sequences/classify", json=body)
    assert response.status_code == 200, response.text
    for answer in response.json()["data"]:
        values = [answer[name] for name in ("index", "label", "margin", "leader")]
        yield list(map(str, round_numbers(values)))


KINDS: dict[str, Callable[[TestClient], Iterator[Row]]] = {
    "texts": text_rows,
    "clouds": cloud_rows,
    "control": control_rows,
    "sequences": sequence_rows,
}


def csv_lines(kind: str, client: TestClient) -> list[str]:
    """Return the rows of `answers/<kind>.csv`."""
    return [",".join(row) for row in KINDS[kind](client)]
