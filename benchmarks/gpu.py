"""Passages and cloud layers a second on a card, ours and torch's, one warm run of each before it is timed.

    python -m benchmarks.gpu                     needs a CUDA device, the extra gpu and torch for CUDA
    python -m benchmarks.gpu --provider cpu      the same code on the CPU: to try the script, not to compare

Ours is what the service runs: the bundled graphs, in the precision they are served in. Torch is the plain way
of writing the same layers: one matrix product, one argmax, one gather. Both start from arrays in main memory
and end with them there, as a request does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.record import Record, Table
from service.cloud.dynamics import Dynamics, Parameters
from service.runtime.bundle import PRETRAINED_ENCODER, read_bundle
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER
from service.text.tokenizer import CHUNK_TOKENS

REPEATS = 5
PATIENCE_S = 30.0  # a case slower than this is run once
PASSAGES = (1, 32, 256, 1024)
CLOUDS = tuple((n, d) for n in (1_000, 10_000, 100_000, 1_000_000) for d in (2, 4, 8, 16, 64))
LAYERS = 4
TILE = 1 << 27  # scores of one tile of queries: 1 GB of float64


def main() -> None:
    parser = argparse.ArgumentParser(description="Passages and cloud layers a second, ours and torch's")
    parser.add_argument("--provider", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--largest", type=int, default=1_000_000, help="leave larger clouds out")
    arguments = parser.parse_args()
    record = Record(f"gpu-{arguments.provider}", "On a card", packages=["numpy", "torch"])
    record.note(f"device: {device_name(arguments.provider)}")
    runtime = Runtime(arguments.provider, intra_op_threads=torch.get_num_threads())
    measure_texts(record.table("texts", "Passages read", unit="passages/s", better="higher"), runtime)
    clouds = [case for case in CLOUDS if case[0] <= arguments.largest]
    measure_clouds(
        record.table("clouds", "Layers of a cloud", unit="layers/s", better="higher"), runtime, clouds
    )
    print(record.write())


def measure_texts(table: Table, runtime: Runtime, cases: Any = PASSAGES, repeats: int = REPEATS) -> None:
    """The reader's graph, on batches of whole passages."""
    session = runtime.open(read_bundle(PRETRAINED_FOLDER / PRETRAINED_ENCODER).model)
    for passages in cases:
        feeds = some_passages(passages)

        def ours(feeds: Any = feeds) -> None:
            session.run(feeds, ("states", "words", "follows"))

        table.add("ours", {"passages": passages}, [passages / seconds for seconds in timed(ours, repeats)])


def measure_clouds(table: Table, runtime: Runtime, cases: Any = CLOUDS, repeats: int = REPEATS) -> None:
    """`LAYERS` layers of Gaussian clouds of (points, dimension), without stopping at the certificate."""
    dynamics = Dynamics.load(read_bundle(PRETRAINED_FOLDER / "dynamics"), runtime)
    parameters = Parameters(alpha=1.0, max_layers=LAYERS, stop="never", include=frozenset())
    for n, d in cases:
        points = np.random.default_rng(n + d).standard_normal((n, d))

        def ours(points: Any = points) -> None:
            assert dynamics.run(points, parameters).layers == LAYERS

        def theirs(points: Any = points) -> None:
            torch_layers(torch.from_numpy(points).to(runtime.provider), alpha=1.0, layers=LAYERS).cpu()

        for subject, run in (("ours", ours), ("torch", theirs)):
            table.add(subject, {"points": n, "d": d}, [LAYERS / seconds for seconds in timed(run, repeats)])


@torch.inference_mode()
def torch_layers(Z: torch.Tensor, alpha: float, layers: int) -> torch.Tensor:
    """Plain layers with A = I, in tiles of queries so that the scores fit: [n,d] -> [n,d]."""
    gamma = alpha / (1 + alpha)
    tile = max(1, TILE // len(Z))
    for _ in range(layers):
        leader = torch.cat([(Z[i : i + tile] @ Z.T).argmax(1) for i in range(0, len(Z), tile)])
        Z = Z + gamma * (Z[leader] - Z)
    return Z


def timed(run: Callable[[], None], repeats: int) -> list[float]:
    """Seconds of each of `repeats` runs after a warm one. Every run ends with its result in main memory."""
    started = time.perf_counter()
    run()
    warm = time.perf_counter() - started
    samples = []
    for _ in range(1 if warm > PATIENCE_S else repeats):
        started = time.perf_counter()
        run()
        samples.append(time.perf_counter() - started)
    return samples


def some_passages(passages: int) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    """Random pieces: speed hardly depends on which."""
    rows = np.arange(passages * CHUNK_TOKENS).reshape(passages, CHUNK_TOKENS)
    drawn = np.random.default_rng(0).integers(1_000, 20_000, rows.size)
    return {"pieces": drawn, "places": np.tile(np.arange(CHUNK_TOKENS), passages), "rows": rows}


def device_name(provider: str) -> str:
    return torch.cuda.get_device_name() if provider == "cuda" else "CPU"


if __name__ == "__main__":
    main()
