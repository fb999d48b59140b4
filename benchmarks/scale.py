"""How cost grows: a layer of a cloud against n and d, texts against length and batch; with fitted exponents.

    python -m benchmarks.scale            within --budget seconds (240)
    python -m benchmarks.scale --quick    small sizes only

The exponent is the slope of log cost over log size between the two largest sizes, where fixed costs no longer
count; requests against connections and workers are in benchmarks/http.py.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time

import numpy as np

from benchmarks.record import Case, Record, Table, peak_mb
from benchmarks.reviews import reviews
from service.bundle import read_bundle
from service.dynamics import Dynamics, Parameters
from service.runtime import Runtime
from service.sentiment import Explain, Sentiment
from service.settings import BUNDLED_MODELS, available_cpus

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
DIMENSIONS = (2, 8, 32)
LENGTHS = (10, 22, 50, 100, 200, 500, 1_000, 2_000, 5_000)
BATCHES = (1, 8, 32, 128)
REPEATS = 3
DEAREST_S = 8.0  # a layer expected to take longer is not run


def clouds(record: Record, sizes: tuple[int, ...], until: float) -> None:
    """One layer of Gaussian clouds, each size in a process of its own so that its memory can be told."""
    times = record.table("layer-time", "One layer of a Gaussian cloud", unit="s", better="neither")
    memory = record.table("layer-memory", "Peak memory of such a process", unit="MB", better="neither")
    for d in DIMENSIONS:
        expected = 0.0
        for n in sizes:
            case: Case = {"d": d, "n": n}
            if expected > DEAREST_S or time.monotonic() > until:
                times.add("ours", case, [], note=f"not run: some {expected:.0f} s expected")
                continue
            layer_s, megabytes = _elsewhere(n, d)
            times.add("ours", case, layer_s)
            memory.add("ours", case, [megabytes])
            expected = (
                min(layer_s) * 10
            )  # the next size is three times as large: at worst nine times the work
            print(f"cloud d {d:3} n {n:8} {min(layer_s):9.4f} s a layer {megabytes:8.0f} MB", file=sys.stderr)
    note_exponents(record, times, "n")
    note_exponents(record, memory, "n")


def _elsewhere(n: int, d: int) -> tuple[list[float], float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--layer", f"{n},{d}"]
    layer_s, megabytes = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return layer_s, megabytes


def layer(n: int, d: int) -> tuple[list[float], float]:
    """Seconds of a single layer, three times, and the peak memory of this process in MB."""
    points = np.random.default_rng(n + d).standard_normal((n, d))
    engine = Dynamics.load(read_bundle(BUNDLED_MODELS / "dynamics"), Runtime("cpu", available_cpus()))
    took = []
    for _ in range(1 + REPEATS):
        run = engine.start(points, Parameters(max_layers=1, stop="never"))
        began = time.perf_counter()
        for _ in run:
            pass
        took.append(time.perf_counter() - began)
    return took[1:], peak_mb()


def texts(record: Record, lengths: tuple[int, ...], seconds: float) -> None:
    """Texts a second on one thread, from characters to explanation, against their length and the batch."""
    model = Sentiment.load(read_bundle(BUNDLED_MODELS / "sentiment"), Runtime("cpu", 1))
    explains: tuple[Explain, ...] = ("none", "leaders")
    for explain in explains:
        table = record.table(
            f"texts-{explain}", f'Texts a second, "explain": "{explain}"', unit="1/s", better="neither"
        )
        for batch in BATCHES:
            for words in lengths:
                some = reviews(words, batch, seed=batch)
                table.add("ours", {"batch": batch, "words": words}, _rate(model, some, explain, seconds))
        note_exponents(record, table, "words")


def _rate(model: Sentiment, some: list[str], explain: Explain, seconds: float) -> list[float]:
    model.classify(model.tokenise_many(some), explain)
    rates = []
    for _ in range(REPEATS):
        done, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds / REPEATS or not done:
            model.classify(model.tokenise_many(some), explain)
            done += len(some)
        rates.append(done / max(took, 1e-9))
    return rates


def note_exponents(record: Record, table: Table, axis: str) -> None:
    """Says how steep each line of a table is at its large end."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in table.rows:
        if row.median:
            name = ", ".join(f"{key} {value}" for key, value in row.case.items() if key != axis)
            lines.setdefault(name, []).append((float(row.case[axis]), row.median))
    said = [f"{name}: {exponent(points):.2f}" for name, points in lines.items() if len(points) > 1]
    record.note(f"{table.title}, exponent in {axis} between the two largest sizes: {'; '.join(said)}.")


def exponent(points: list[tuple[float, float]]) -> float:
    """The slope of log cost over log size between the two largest sizes."""
    (x0, y0), (x1, y1) = sorted(points)[-2:]
    return math.log(y1 / y0) / math.log(x1 / x0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=240)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--layer", help=argparse.SUPPRESS)  # n,d: one case, in this process
    arguments = parser.parse_args()
    if arguments.layer:
        n, d = map(int, arguments.layer.split(","))
        print(json.dumps(layer(n, d)))
        return
    record = Record("scale", "How cost grows", ["numpy", "onnxruntime", "tokenizers"])
    sizes, lengths = (SIZES[:3], LENGTHS[:5]) if arguments.quick else (SIZES, LENGTHS)
    seconds = 0.1 if arguments.quick else 0.25 * arguments.budget / (len(BATCHES) * len(lengths) * 2)
    texts(record, lengths, seconds)
    clouds(record, sizes, time.monotonic() + 0.6 * arguments.budget)
    print(record.write())


if __name__ == "__main__":
    main()
