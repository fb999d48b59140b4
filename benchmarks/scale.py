"""How cost grows: a layer of a cloud against n and d, texts against length and batch, requests against
connections and workers; with fitted exponents, and every place where they change.

    python -m benchmarks.scale            some ten minutes
    python -m benchmarks.scale --quick    every part at small sizes, in half a minute; writes nothing

docs/scale.md says why the lines bend where they do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.growth import note_growth
from benchmarks.http import Plan, measure
from benchmarks.record import RESULTS, Case, Record, Table, peak_mb
from benchmarks.reviews import reviews
from benchmarks.servers import FLOOR, OURS
from service.bundle import read_bundle
from service.dynamics import Dynamics, Parameters
from service.runtime import Runtime
from service.sentiment import Explain, Sentiment
from service.settings import BUNDLED_MODELS, available_cpus

REPEATS = 3
LONG_S = 4.0  # a layer that takes longer is measured once
DEAREST_S = 60.0  # a layer expected to take longer is not run
AT_ONCE = 32  # texts together where the steps of their way are timed


@dataclass(frozen=True)
class Sizes:
    """What is run; seconds are those of one measurement, a cloud's budget those of all clouds."""

    points: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    dimensions: tuple[int, ...] = (2, 8, 32)  # against n
    widths: tuple[int, ...] = (2, 3, 4, 8, 16, 32, 64, 128)  # against d
    width_points: tuple[int, ...] = (10_000, 100_000)
    words: tuple[int, ...] = (10, 22, 50, 100, 200, 500, 1_000, 2_000, 5_000)
    batches: tuple[int, ...] = (1, 8, 32, 128)
    text_s: float = 0.75
    connections: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    workers: tuple[int, ...] = (1, 2)
    load_s: float = 1.0
    rounds: int = 2
    cloud_budget_s: float = 330.0


QUICK = Sizes(
    points=(1_000, 3_000, 10_000),
    widths=(2, 8, 32),
    width_points=(3_000,),
    words=(10, 50, 200),
    batches=(1, 8),
    text_s=0.05,
    connections=(1, 8, 64),
    load_s=0.3,
    rounds=1,
    cloud_budget_s=60.0,
)


def clouds(record: Record, sizes: Sizes) -> None:
    """One layer of Gaussian clouds, each in a process of its own so that its memory can be told."""
    until = time.monotonic() + sizes.cloud_budget_s
    times = record.table("layer-n", "One layer against n", unit="s", better="neither")
    memory = record.table("memory-n", "Peak memory of such a process", unit="MB", better="neither")
    for d in sizes.dimensions:
        _climb(times, memory, [{"d": d, "n": n} for n in sizes.points], until)
    wide = record.table("layer-d", "One layer against d", unit="s", better="neither")
    heavy = record.table("memory-d", "Peak memory of such a process, against d", unit="MB", better="neither")
    for n in sizes.width_points:
        _climb(wide, heavy, [{"n": n, "d": d} for d in sizes.widths], until)
    for table, axis in ((times, "n"), (memory, "n"), (wide, "d"), (heavy, "d")):
        note_growth(record, table, axis)


def _climb(times: Table, memory: Table, cases: list[Case], until: float) -> None:
    """The cases in turn, up to the first that would take too long: at worst cost grows as n^2 and as d."""
    took, before = 0.0, cases[0]
    for case in cases:
        n, d = int(case["n"]), int(case["d"])
        expected = took * (n / int(before["n"])) ** 2 * d / int(before["d"])
        if expected > DEAREST_S or time.monotonic() > until:
            times.add("ours", case, [], note=f"not run: up to {expected:.0f} s expected")
            continue
        try:
            layer_s, megabytes = _elsewhere(n, d)
        except subprocess.SubprocessError as failed:
            took, before = 2 * DEAREST_S, case
            times.add("ours", case, [], note=f"no answer: {type(failed).__name__}")
            continue
        times.add("ours", case, layer_s)
        memory.add("ours", case, [megabytes])
        took, before = min(layer_s), case
        _say(f"cloud n {n:8} d {d:3} {took:9.4f} s a layer {megabytes:8.0f} MB")


def _elsewhere(n: int, d: int) -> tuple[list[float], float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--layer", f"{n},{d}"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=2 * DEAREST_S)
    layer_s, megabytes = json.loads(done.stdout)
    return layer_s, megabytes


def layer(n: int, d: int) -> tuple[list[float], float]:
    """Seconds of a single layer, putting the points in order included, and this process's peak in MB."""
    points = np.random.default_rng(n + d).standard_normal((n, d))
    engine = Dynamics.load(read_bundle(BUNDLED_MODELS / "dynamics"), Runtime("cpu", available_cpus()))
    took: list[float] = []
    while len(took) < 1 + REPEATS:
        run = engine.start(points, Parameters(max_layers=1, stop="never"))
        began = time.perf_counter()
        for _ in run:
            pass
        took.append(time.perf_counter() - began)
        if took[0] > LONG_S:
            return took, peak_mb()
    return took[1:], peak_mb()  # the first made memory and threads ready


def texts(record: Record, sizes: Sizes) -> None:
    """Texts a second on one thread, from characters to explanation, and where the time of one goes."""
    model = Sentiment.load(read_bundle(BUNDLED_MODELS / "sentiment"), Runtime("cpu", 1))
    explains: tuple[Explain, ...] = ("none", "leaders")
    for explain in explains:
        title = f'Texts a second, "explain": "{explain}"'
        table = record.table(f"texts-{explain}", title, unit="1/s", better="neither")
        for batch in sizes.batches:
            for words in sizes.words:
                some = reviews(words, batch, seed=batch)
                rates = _rates(partial(_judge, model, some, explain), batch, sizes.text_s)
                row = table.add("ours", {"batch": batch, "words": words}, rates)
                _say(f"texts {explain:8} batch {batch:4} words {words:5} {row.median:9.0f}/s")
        note_growth(record, table, "words")
    _parts(record, model, sizes)


def _parts(record: Record, model: Sentiment, sizes: Sizes) -> None:
    """Milliseconds a text of each step of its way, many together."""
    title = f"Where the time of a text goes, {AT_ONCE} together"
    steps = ("tokenise", "infer, label only", "infer, with leaders")
    table = record.table("texts-steps", title, unit="ms", better="neither", ours=steps)
    for words in sizes.words:
        some = reviews(words, AT_ONCE)
        read = model.tokenise_many(some)
        works = (
            partial(model.tokenise_many, some),
            partial(model.classify, read, "none"),
            partial(model.classify, read, "leaders"),
        )
        for step, work in zip(steps, works, strict=True):
            table.add(step, {"words": words}, [1e3 / rate for rate in _rates(work, AT_ONCE, sizes.text_s)])
    note_growth(record, table, "words")


def _judge(model: Sentiment, some: list[str], explain: Explain) -> None:
    model.classify(model.tokenise_many(some), explain)


def _rates(work: Callable[[], object], count: int, seconds: float) -> list[float]:
    """How many texts a second, three times, where `work` does `count` of them."""
    work()
    rates = []
    for _ in range(REPEATS):
        done, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds / REPEATS or not done:
            work()
            done += count
        rates.append(done / took)
    return rates


def requests(record: Record, sizes: Sizes) -> None:
    """Requests a second and latency of the service and of the floor, one text of 22 words each."""
    plan = Plan((OURS, FLOOR), sizes.workers, sizes.connections, sizes.load_s, sizes.rounds)
    loads = {key: runs for key, runs in measure(plan).items() if key[1] == "leaders"}
    tables = {
        name: record.table(f"requests-{name}", title, unit=unit, better="neither", floors=("floor",))
        for name, title, unit in (
            ("rate", "Requests a second against connections", "1/s"),
            ("p50", "Median latency against connections", "ms"),
            ("p99", "99th percentile of latency against connections", "ms"),
        )
    }
    for (subject, _, workers, connections), runs in loads.items():
        case: Case = {"workers": workers, "connections": connections}
        tables["rate"].add(subject, case, [run.statuses[200] / run.seconds for run in runs])
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            tables[name].add(subject, case, [run.quantile_ms(share) for run in runs if run.latencies_s])
    for name in ("rate", "p50"):  # the exponents of a 99th percentile would be those of chance
        note_growth(record, tables[name], "connections")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--results", type=Path, help="write here instead")
    parser.add_argument("--layer", help=argparse.SUPPRESS)  # n,d: one case, in this process
    given = parser.parse_args(arguments)
    if given.layer:
        n, d = map(int, given.layer.split(","))
        print(json.dumps(layer(n, d)))
        return
    sizes = QUICK if given.quick else Sizes()
    record = Record("scale", "How cost grows", ["numpy", "onnxruntime", "tokenizers", "uvicorn"])
    record.note(
        "Clouds are Gaussian, texts run on one thread. A request is one text of 22 words, answered "
        "with its leaders: one worker on one CPU and the load on the other, two workers share both with it. "
        "The floor is a raw ASGI app on uvicorn that sends bytes of our answer's size."
    )
    for part in (texts, requests, clouds):
        part(record, sizes)
    if given.results or not given.quick:
        print(record.write(given.results or RESULTS))


if __name__ == "__main__":
    main()
