"""One layer of hardmax attention compared with peers, and whole runs of clouds to certified limits.

    python -m benchmarks.clouds [--quick]

Every subject gets the same cloud in float64 (faiss has float32 only, and is therefore not exact) and returns
the points after one layer. Ours is exact: doubtful scores are decided in rational arithmetic. numpy, torch,
KeOps and faiss compare every pair; in two and three dimensions another numpy subject compares with the
vertices of the convex hull only. A slow peer gets 2048 of the queries; their time is multiplied, but not that
of an index or a hull, and the row has a note. `make bench` installs the peers;
those that are not installed are left out, with a note.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT, Case, Record, Table, argument_parser, run_times, timed
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
SAMPLED_QUERIES = 2048  # for peers that need more than MAX_LAYER_S for all queries
MAX_LAYER_S = 8.0
REPEATS = 9
HULL = "numpy + convex hull"
MAX_HULL_DIMENSION = 3  # hulls take too long in more

Layer = Callable[[Floats], Floats]  # queries -> the queries one layer later
Peer = Callable[[Floats], Layer]  # keys -> layer; this builds an index of the keys
Search = Callable[[Floats], Any]  # queries -> the number of the best key of each


def draw(cloud: str, n: int, d: int) -> Floats:
    """Draw a cloud. All points of a sphere are extreme: no key can be dropped for all queries at once."""
    rng = np.random.default_rng(n + d)
    if cloud == "uniform":
        return rng.uniform(-1, 1, (n, d))
    if cloud == "clustered":
        return rng.standard_normal((10, d))[rng.integers(0, 10, n)] + 0.1 * rng.standard_normal((n, d))
    points = rng.standard_normal((n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True) if cloud == "sphere" else points


CLOUDS = ("gaussian", "uniform", "clustered", "sphere")


class HardmaxLayer:
    """One layer of the service, without the validation of the points."""

    def __init__(self) -> None:
        bundle = read_bundle(PRETRAINED_FOLDER / "dynamics")
        self._session: Session = Runtime("cpu", THREADS).open(bundle.model)

    def __call__(self, points: Floats) -> Floats:
        n = len(points)
        cloud = Cloud(points, np.ones(n, np.int64), np.arange(n), 0, None)
        tokens = Tokens(cloud, alpha=1.0)
        Attention(self._session, tokens).attend()
        tokens.step()
        return tokens.points(1)


def follow(search: Callable[[Floats], Search]) -> Peer:
    """Return a peer whose queries move towards the keys that a search of them finds."""

    def indexed(keys: Floats) -> Layer:
        find = search(keys)
        return lambda queries: queries + GAMMA * (keys[find(queries)] - queries)

    return indexed


def numpy_peer() -> Peer:
    def find(keys: Floats, queries: Floats) -> Any:
        tiles = (queries[i : i + TILE] for i in range(0, len(queries), TILE))
        return np.concatenate([(tile @ keys.T).argmax(axis=1) for tile in tiles])

    return follow(lambda keys: partial(find, keys))


def hull_peer() -> Peer:
    """Return a peer that compares with the vertices of the convex hull only: leaders are among them."""
    from scipy.spatial import ConvexHull

    brute = numpy_peer()
    return lambda keys: brute(keys[ConvexHull(keys).vertices])


def torch_peer() -> Peer:
    import torch

    torch.set_num_threads(THREADS)

    def find(keys: Floats, queries: Floats) -> Any:
        q, k = torch.from_numpy(queries), torch.from_numpy(keys)
        return torch.cat([(tile @ k.T).argmax(dim=1) for tile in q.split(TILE)]).numpy()

    return follow(lambda keys: partial(find, keys))


def keops_peer() -> Peer:
    import pykeops
    from pykeops.numpy import LazyTensor

    pykeops.set_verbose(False)

    def find(keys: Floats, queries: Floats) -> Any:
        scores = (LazyTensor(queries[:, None, :]) * LazyTensor(keys[None, :, :])).sum(-1)
        return scores.argmax(dim=1).reshape(-1)

    return follow(lambda keys: partial(find, keys))


def faiss_peer() -> Peer:
    import faiss

    faiss.omp_set_num_threads(THREADS)

    def search(keys: Floats) -> Search:
        index = faiss.IndexFlatIP(keys.shape[1])
        index.add(keys.astype(np.float32))
        return lambda queries: index.search(queries.astype(np.float32), 1)[1][:, 0]

    return follow(search)


PEERS = {HULL: hull_peer, "numpy": numpy_peer, "torch": torch_peer, "KeOps": keops_peer, "faiss": faiss_peer}


def load_peers(record: Record) -> dict[str, Peer]:
    peers = {}
    for name, build in PEERS.items():
        try:
            peers[name] = build()
        except ImportError as error:
            record.note(f"{name} was left out: {error}")
    return peers


def compare(table: Table, hardmax: HardmaxLayer, peers: dict[str, Peer], cloud: str, n: int, d: int) -> None:
    """Add a row for us and for every peer on the same cloud, and compare their results."""
    points = draw(cloud, n, d)
    case: Case = {"cloud": cloud, "d": d, "n": n}
    expected = hardmax(points)
    table.add("ours", case, run_times(lambda: hardmax(points), REPEATS, 2.0))
    for name, peer in peers.items():
        if name == HULL and d > MAX_HULL_DIMENSION:
            continue
        layer, queries = peer(points), points[:SAMPLED_QUERIES]
        indexing_s = float(np.median(run_times(partial(peer, points), REPEATS, 0.2)))
        samples = run_times(partial(layer, queries), REPEATS, 1.0)
        if n > SAMPLED_QUERIES and n / SAMPLED_QUERIES * samples[0] <= MAX_LAYER_S:
            queries = points
            samples = run_times(partial(layer, queries), REPEATS, 1.0)
        factor, error = n / len(queries), float(np.abs(layer(queries) - expected[: len(queries)]).max())
        notes = [f"{len(queries)} queries measured, times {factor:g}"] if factor > 1 else []
        notes += [f"differs by {error:.1g}"] if error > 1e-12 else []
        table.add(name, case, [indexing_s + factor * seconds for seconds in samples], "; ".join(notes))


def certify(cloud: str, n: int, d: int) -> None:
    """Run a cloud to its limits, and print time and peak memory: `measure_limits` runs this as a process."""
    points = draw(cloud, n, d)
    dynamics = Dynamics.load(read_bundle(PRETRAINED_FOLDER / "dynamics"), Runtime("cpu", THREADS))
    result, elapsed_s = timed(lambda: dynamics.run(points, Parameters()))
    status = Path("/proc/self/status").read_text()  # getrusage would count the parent's memory before exec
    peak_gib = int(status.split("VmHWM:")[1].split()[0]) / 2**20
    print(elapsed_s, peak_gib, result.status, result.layers, len(result.leaders), len(result.clusters))


def measure_limits(record: Record, cases: Iterator[tuple[str, int, int]]) -> None:
    """Add time and peak memory of whole runs, each in a process of its own."""
    times = record.table("Time to certified limits", unit="s", better="lower")
    memory = record.table("Peak memory of the process, interpreter included", unit="GiB", better="lower")
    for cloud, n, d in cases:
        command = [sys.executable, "-m", "benchmarks.clouds", "--certify", cloud, str(n), str(d)]
        child = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        elapsed_s, peak_gib, status, layers, leaders, clusters = child.stdout.split()
        note = f"{status} at layer {layers}: {leaders} leaders, {clusters} clusters"
        case: Case = {"cloud": cloud, "d": d, "n": n}
        times.add("ours", case, [float(elapsed_s)], note)
        memory.add("ours", case, [float(peak_gib)])


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--certify", nargs=3, metavar=("CLOUD", "N", "D"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.certify:
        cloud, n, d = arguments.certify
        certify(cloud, int(n), int(d))
        return
    record = Record(
        "clouds", "Clouds", ["numpy", "scipy", "onnxruntime", "torch", "pykeops", "faiss-cpu"], ["dynamics"]
    )
    peers = load_peers(record)
    table = record.table("One layer of hardmax attention, float64", unit="s", better="lower")
    record.note(
        f"{HULL} compares with the vertices of the convex hull alone, in up to {MAX_HULL_DIMENSION} "
        "dimensions. The other peers compare every pair. Ours decides doubtful scores exactly; no peer does."
    )
    record.note(
        "faiss computes in float32: where two scores nearly tie it may choose another key than the rest."
    )
    hardmax = HardmaxLayer()
    sizes = [1000, 10_000] if arguments.quick else [1000, 10_000, 100_000]
    for cloud in CLOUDS:
        for d in (2, 3, 8, 16, 64) if cloud == "gaussian" else (2, 3, 8):
            for n in sizes if cloud == "gaussian" else sizes[-1:]:
                compare(table, hardmax, peers, cloud, n, d)
    large = 100_000 if arguments.quick else 1_000_000
    measure_limits(record, ((cloud, large, 2) for cloud in ("gaussian", "uniform")))
    record.write(quick=arguments.quick)


if __name__ == "__main__":
    main()
