"""One layer of hardmax attention, ours against peers; clouds run to certified limits.

    python -m benchmarks.clouds [--quick | --patient]

Every subject gets the same cloud in float64 (faiss knows float32 only, and is therefore not exact) and gives
back the points after one layer. Ours is exact: doubtful scores are decided in rational arithmetic. numpy,
torch, KeOps and faiss compare every pair; in the plane and in space another numpy compares with the vertices
of the convex hull alone. A peer that would take long is given 2048 of the queries and their time is
multiplied, but not that of an index or a hull: noted at each such row. The peers are installed on first use
(environments.py); one that cannot be had is left out, with a note.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.environments import fetched
from benchmarks.record import Case, Record, Table
from service.cloud.attention import Attention
from service.cloud.dynamics import Dynamics, Parameters
from service.cloud.points import Cloud, Floats
from service.cloud.tokens import Tokens
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime, Session
from service.settings import PRETRAINED_FOLDER

THREADS = 2
GAMMA = 0.5
TILE = 2048
SOME = 2048  # queries that a peer is given
WHOLE_S = 8.0  # when the whole layer would take it longer
HULL, HULL_MOST = "numpy + convex hull", 3  # dimensions of a cloud whose hull is small enough to find

T = TypeVar("T")
Layer = Callable[[Floats], Floats]  # queries -> the queries one layer later
Peer = Callable[[Floats], Layer]  # keys -> its layer; an index of the keys is made here


def gaussian(n: int, d: int) -> Floats:
    return np.random.default_rng(n + d).standard_normal((n, d))


def uniform(n: int, d: int) -> Floats:
    return np.random.default_rng(n + d).uniform(-1, 1, (n, d))


def clustered(n: int, d: int) -> Floats:
    rng = np.random.default_rng(n + d)
    return rng.standard_normal((10, d))[rng.integers(0, 10, n)] + 0.1 * rng.standard_normal((n, d))


def sphere(n: int, d: int) -> Floats:
    """Every point is extreme: nothing can be dropped for all queries at once."""
    points = gaussian(n, d)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


CLOUDS = {"gaussian": gaussian, "uniform": uniform, "clustered": clustered, "sphere": sphere}


class Ours:
    """One layer of the service, from checked points on."""

    def __init__(self) -> None:
        bundle = read_bundle(PRETRAINED_FOLDER / "dynamics")
        self._session: Session = Runtime("cpu", THREADS).open(bundle.model)

    def __call__(self, points: Floats) -> Floats:
        n = len(points)
        cloud = Cloud(points, np.ones(n, np.int64), np.arange(n), 0, None)
        tokens = Tokens(cloud, alpha=1.0)
        Attention(self._session, tokens, tie_tolerance=0.0).attend()
        tokens.step()
        return tokens.points(1)


def numpy_peer() -> Peer:
    def layer(keys: Floats, queries: Floats) -> Floats:
        tiles = (queries[i : i + TILE] for i in range(0, len(queries), TILE))
        best = np.concatenate([(tile @ keys.T).argmax(axis=1) for tile in tiles])
        return queries + GAMMA * (keys[best] - queries)

    return lambda keys: partial(layer, keys)


def hull_peer() -> Peer:
    """Whoever is followed is a vertex of the convex hull."""
    from scipy.spatial import ConvexHull

    brute = numpy_peer()
    return lambda keys: brute(keys[ConvexHull(keys).vertices])


def torch_peer() -> Peer:
    import torch

    torch.set_num_threads(THREADS)

    def layer(keys: Floats, queries: Floats) -> Floats:
        q, k = torch.from_numpy(queries), torch.from_numpy(keys)
        best = torch.cat([(tile @ k.T).argmax(dim=1) for tile in q.split(TILE)])
        return (q + GAMMA * (k[best] - q)).numpy()

    return lambda keys: partial(layer, keys)


def keops_peer() -> Peer:
    import pykeops
    from pykeops.numpy import LazyTensor

    pykeops.set_verbose(False)

    def layer(keys: Floats, queries: Floats) -> Floats:
        scores = (LazyTensor(queries[:, None, :]) * LazyTensor(keys[None, :, :])).sum(-1)
        best = scores.argmax(dim=1).reshape(-1)
        return queries + GAMMA * (keys[best] - queries)

    return lambda keys: partial(layer, keys)


def faiss_peer() -> Peer:
    import faiss

    faiss.omp_set_num_threads(THREADS)

    def indexed(keys: Floats) -> Layer:
        index = faiss.IndexFlatIP(keys.shape[1])
        index.add(keys.astype(np.float32))

        def layer(queries: Floats) -> Floats:
            best = index.search(queries.astype(np.float32), 1)[1][:, 0]
            return queries + GAMMA * (keys[best] - queries)

        return layer

    return indexed


PEERS = {HULL: hull_peer, "numpy": numpy_peer, "torch": torch_peer, "KeOps": keops_peer, "faiss": faiss_peer}


def load_peers(record: Record, refused: str) -> dict[str, Peer]:
    peers = {}
    for name, build in PEERS.items():
        try:
            peers[name] = build()
        except ImportError as missing:
            record.note(f"{name} was left out: {refused or missing}")
    return peers


def measure(work: Callable[[], T], budget_s: float) -> tuple[T, list[float]]:
    """What `work` gives, and samples of its time after that first run: one to nine, in about the budget."""
    result = work()
    samples: list[float] = []
    while len(samples) < 9 and sum(samples) < budget_s:
        began = time.perf_counter()
        work()
        samples.append(time.perf_counter() - began)
    return result, samples


def compare(table: Table, ours: Ours, peers: dict[str, Peer], name: str, n: int, d: int) -> None:
    """Ours and every peer on one cloud; a row each, checked against each other."""
    points = CLOUDS[name](n, d)
    case: Case = {"cloud": name, "d": d, "n": n}
    truth, samples = measure(lambda: ours(points), 2)
    mine = table.add("ours", case, samples).median or np.nan
    best = np.inf
    for peer, of in peers.items():
        if peer == HULL and d > HULL_MOST:
            continue
        layer, indexing = measure(partial(of, points), 0.2)
        queries = points[:SOME]
        later, samples = measure(partial(layer, queries), 1)
        if n > SOME and n / SOME * samples[0] <= WHOLE_S:
            queries = points
            later, samples = measure(partial(layer, queries), 1)
        times = n / len(queries)
        notes = [f"{len(queries)} queries measured, times {times:g}"] if times > 1 else []
        error = float(np.abs(later - truth[: len(queries)]).max())
        notes += [f"differs by {error:.1g}"] if error > 1e-12 else []
        row = table.add(
            peer, case, [float(np.median(indexing)) + times * each for each in samples], "; ".join(notes)
        )
        best = min(best, row.median or np.inf)
    where = f"{name:10s} d {d:3d}  n {n:8d}"
    print(
        f"{where}  ours {mine * 1e3:.1f} ms  best peer {best * 1e3:.1f} ms  {best / mine:.1f} x", flush=True
    )


def certify(cloud: str, n: int, d: int) -> None:
    """Run a cloud to its limits in this process, and print what it took: the child of `measure_limits`."""
    points = CLOUDS[cloud](n, d)
    dynamics = Dynamics.load(read_bundle(PRETRAINED_FOLDER / "dynamics"), Runtime("cpu", THREADS))
    began = time.perf_counter()
    result = dynamics.run(points, Parameters())
    took = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()  # getrusage would count the parent's memory before exec
    peak = int(status.split("VmHWM:")[1].split()[0]) / 2**20
    print(took, peak, result.status, result.layers, len(result.leaders), len(result.clusters))


def measure_limits(record: Record, cases: Iterator[tuple[str, int, int]]) -> None:
    """Whole runs in processes of their own, for their peak memory."""
    times = record.table("Time to certified limits", unit="s", better="lower")
    memory = record.table("Peak memory of the process, interpreter included", unit="GiB", better="lower")
    for cloud, n, d in cases:
        command = [sys.executable, "-m", "benchmarks.clouds", "--certify", cloud, str(n), str(d)]
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
        )
        took, peak, status, layers, leaders, clusters = answer.stdout.split()
        note = f"{status} at layer {layers}: {leaders} leaders, {clusters} clusters"
        case: Case = {"cloud": cloud, "d": d, "n": n}
        times.add("ours", case, [float(took)], note)
        memory.add("ours", case, [float(peak)])
        print(
            f"{cloud:10s} d {d:3d}  n {n:8d}  {float(took):6.2f} s  {float(peak):5.2f} GiB  {note}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="up to 10^4 points, and write nothing")
    parser.add_argument("--patient", action="store_true", help="10^6 points in space too: minutes each")
    parser.add_argument("--certify", nargs=3, metavar=("CLOUD", "N", "D"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.certify:
        cloud, n, d = arguments.certify
        certify(cloud, int(n), int(d))
        return
    refused = fetched("clouds")
    record = Record(
        "clouds", "Clouds", ["numpy", "scipy", "onnxruntime", "torch", "pykeops", "faiss-cpu"], ["dynamics"]
    )
    peers = load_peers(record, refused)
    table = record.table("One layer of hardmax attention, float64", unit="s", better="lower")
    record.note(
        f"{HULL} compares with the vertices of the convex hull alone, in up to {HULL_MOST} dimensions. The "
        "other peers compare every pair. Ours decides doubtful scores exactly; no peer does."
    )
    record.note(
        "faiss computes in float32: where two scores nearly tie it may choose another key than the rest."
    )
    ours = Ours()
    sizes = [1000, 10_000] if arguments.quick else [1000, 10_000, 100_000]
    for cloud in CLOUDS:
        for d in (2, 3, 8, 16, 64) if cloud == "gaussian" else (2, 3, 8):
            for n in sizes if cloud == "gaussian" else sizes[-1:]:
                compare(table, ours, peers, cloud, n, d)
    dimensions = (2, 3) if arguments.patient else (2,)
    large = 100_000 if arguments.quick else 1_000_000
    measure_limits(record, ((cloud, large, d) for cloud in ("gaussian", "uniform") for d in dimensions))
    record.write(quick=arguments.quick)


if __name__ == "__main__":
    main()
