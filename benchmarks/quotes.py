"""What the documents quote: the text around each figure with {} in its place, and the figures.

Knows the documents' words and which measurement each figure is; how it is looked up and said stands in
values.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.values import Results, digits, people, seconds

Quotes = Iterator[tuple[str, tuple[str, ...]]]

CLOUDS = (
    ("Gaussian, d = 2", "gaussian", 2),
    ("Gaussian, d = 3", "gaussian", 3),
    ("Gaussian, d = 8", "gaussian", 8),
    ("Gaussian, d = 16", "gaussian", 16),
    ("uniform, d = 2", "uniform", 2),
    ("clustered, d = 8", "clustered", 8),
)
SERVERS = (
    ("FastAPI, the same model in the loop", "FastAPI, in the loop"),
    ("MLServer, the same model", "MLServer"),
    ("LitServe, the same model", "LitServe"),
    ("BentoML, the same model", "BentoML"),
    ("a raw ASGI application that returns the same bytes", "floor"),
)
REQUESTS = (
    ("a review of 22 words, with leaders", 22, 1, "leaders"),
    ("a review of 230 words, with leaders", 230, 1, "leaders"),
    ('the same with `"explain": "full"`', 230, 1, "full"),
    ("a review of 230 words among 64 in a request", 230, 64, "leaders"),
)
RUNS = ((10_000, 2), (100_000, 2), (10_000, 16), (100_000, 16))
PEAKS = ((100, 2), (10_000, 2), (100_000, 2), (10_000, 16), (100_000, 16))
USE = 0.6  # of the CPUs, so that a machine can fail and a peak can come
CORE_HOUR = 0.04  # dollars
DAY_S = 86_400
FLEETS = (("one core", 1), ("one machine, 16 cores", 16), ("ten machines", 160), ("a hundred machines", 1600))


def readme(results: Results) -> Quotes:
    yield from _clouds(results)
    yield from _requests(results)
    subjects = ("ours, leaders", "TF-IDF pairs + logistic regression")
    ours, theirs = (results.of("texts", "reviews", subject, cores=1) for subject in subjects)
    yield "whole reviews, at {} of the speed of TF-IDF with logistic regression", (digits(ours / theirs),)


def _clouds(results: Results) -> Quotes:
    for name, cloud, d in CLOUDS:
        case = {"cloud": cloud, "d": d, "n": 100_000}
        ours, best = results.of("clouds", "layer", **case), results.best_peer("clouds", "layer", **case)
        yield f"| {name} | {{}} | {{}} | {{}} |", (_clock(ours), _clock(best), _times(best / ours))
    million = {"cloud": "gaussian", "d": 2, "n": 1_000_000}
    took, memory = (results.of("clouds", table, **million) for table in ("limits", "memory"))
    yield (
        "A million points in the plane run to certified limits in {} and {} GiB.",
        (seconds(took), digits(memory)),
    )
    dense = results.best_peer("clouds", "layer", cloud="gaussian", d=2, n=1000)
    yield "where a dense product of {} needs no cleverness", (seconds(dense),)


def _requests(results: Results) -> Quotes:
    busy = {"workers": 1, "connections": 32}
    ours = results.of("http", "leaders-throughput", **busy)
    yield "| hardmax | {} | |", (f"{ours:,.0f}",)
    for name, subject in SERVERS:
        rate = results.of("http", "leaders-throughput", subject, **busy)
        yield f"| {name} | {{}} | {{}} |", (f"{rate:,.0f}", _times(ours / rate))
    labels, floor = (results.of("http", "none-throughput", subject, **busy) for subject in ("ours", "floor"))
    yield "labels without a reason come at {} of its rate", (digits(labels / floor),)
    alone = results.of("http", "leaders-p50", workers=1, connections=1)
    ready = results.of("startup", "ready", workers=1)
    memory = results.of("startup", "memory", workers=1, when="ready")
    yield (
        "A 22-word text at rest is answered in {} ms (median); ready {} s after the start, "
        "{} MB with all models.",
        (digits(alone), digits(ready), digits(memory, 3)),
    )


def operations(results: Results) -> Quotes:
    for name, words, texts, explain in REQUESTS:
        cost = _text(results, words, texts, explain)
        yield f"| {name} | {{}} | {{}} a second |", (seconds(cost), digits(1 / cost))
    for n, d in RUNS:
        cost = results.of("sizing", "cpu", points=n, d=d)
        name = f"a cloud of {n:,} points, d = {d}, to its certificate"
        yield f"| {name} | {{}} | {{}} a minute |", (seconds(cost), digits(60 / cost))
    yield "| loaded and warm, with the bundled models | {} MB |", (_megabytes(results, "the start"),)
    yield "| after a minute of reviews at full load | {} MB |", (_megabytes(results, "the texts"),)
    for n, d in PEAKS:
        memory = _megabytes(results, f"{n} points, d = {d}")
        yield f"| at its highest over a cloud of {n:,} points, d = {d} | {{}} MB |", (memory,)


def scale(results: Results) -> Quotes:
    short, long = _text(results, 22, 1, "leaders"), _text(results, 230, 64, "leaders")
    alone = _text(results, 230, 1, "leaders")
    plane, space = (results.of("sizing", "cpu", points=100_000, d=d) for d in (2, 16))
    yield (
        "a review of 22 words with its leaders, one a request: **{}**, so {} requests a second and core",
        (seconds(short), digits(1 / short)),
    )
    together = (seconds(long), digits(1 / long))
    yield "a review of 230 words, 64 a request: **{}**, so {} reviews a second", together
    yield (
        "a cloud of 100,000 points in the plane to its certificate: **{}**; in 16 dimensions {};",
        (seconds(plane), seconds(space)),
    )
    loaded, worked = _megabytes(results, "the start"), _megabytes(results, "the texts")
    yield "a process: {} MB loaded and warm, {} MB after full load.", (loaded, worked)
    for name, cores in FLEETS:
        day = USE * cores * DAY_S
        figures = (
            digits(cores / short),
            *(people(day / cost) for cost in (short, long, plane)),
            digits(24 * CORE_HOUR * cores),
        )
        yield f"| {name} | {{}} | {{}} | {{}} | {{}} | {{}} |", figures
    cores = 1e6 * short / USE
    yield (
        "A million short requests a second, all day, are {} cores at 60 %: {} machines, ${} an hour, "
        "${} for a billion answers.",
        (digits(cores), digits(cores / 16), digits(cores * CORE_HOUR), digits(cores * CORE_HOUR / 3.6)),
    )
    yield "of those {} a short request needs", (seconds(short),)
    yield "ten times the words, sent by the 64, cost {} each.", (seconds(long),)
    yield "Callers that send long texts by the 64 get {} times as many through.", (digits(alone / long),)
    hours = 1e9 * long / 3600
    yield "A billion reviews of 230 words are {} core-hours:", (digits(hours),)
    yield "on a Ray cluster of 64 cores needs {} hours.", (digits(hours / 64),)
    million = results.of("clouds", "memory", cloud="gaussian", d=2, n=1_000_000) * 2**30 / 1e6
    yield (
        "a run in the plane needs {} kB a point, so 10^8 points are {} GB:",
        (digits(million / 1e3), digits(million / 10)),
    )


def reliability(results: Results) -> Quotes:
    cases, failed = (results.of("fuzz", "total", subject) for subject in ("cases", "with a failure"))
    tables = ("readers", "guided", "service")
    parts = sum(row["subject"] == "cases" for table in tables for row in results.rows("fuzz", table))
    yield (
        "The last whole run: {} cases, {} of {} parts with a failure.",
        (f"{cases:,.0f}", f"{failed:.0f}", str(parts)),
    )


def _text(results: Results, words: int, texts: int, explain: str) -> float:
    return results.of("sizing", "cpu", words=words, texts=texts, explain=explain)


def _megabytes(results: Results, after: str) -> str:
    return digits(results.of("sizing", "memory", after=after))


def _clock(value: float) -> str:
    return f"{digits(1e3 * value, 3)} ms" if value < 1 else f"{digits(value, 3)} s"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 9.95 else digits(ratio)
