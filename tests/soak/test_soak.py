"""Twice the capacity, for MINUTES (10): every answer is right or a documented refusal, and nothing grows."""

import asyncio
import os
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

import pytest
from server import serving

from benchmarks.record import Record
from benchmarks.servers import pinned
from tests.soak.crowd import Crowd, Tally
from tests.soak.mix import build_mix
from tests.soak.monitor import ResourceMonitor, Sample

MINUTES = float(os.environ.get("MINUTES", "10"))
CALLERS = 256  # enough to send at twice the rate while others wait for answers
MAX_CONCURRENT_REQUESTS = 32
WARMUP_S = 20.0
MAX_SLOWDOWN = 5.0  # of the 99th percentile, with twice the requests in progress


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_overloaded_service_stays_right_and_does_not_grow(small_models: Path) -> None:
    record = Record("soak", "Overload: twice the capacity", ["uvicorn", "onnxruntime"])
    mix = build_mix(small_models)
    cpus = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        with pinned({cpus[0]}):
            settings = {"max_concurrent_requests": MAX_CONCURRENT_REQUESTS, "log_level": "error"}
            server = stack.enter_context(serving(small_models, **settings))
        with pinned({cpus[-1]}):
            capacity = asyncio.run(Crowd(server.port, mix, MAX_CONCURRENT_REQUESTS // 2).run(WARMUP_S))
            rate = 2 * capacity.requests / WARMUP_S
            with ResourceMonitor(server.process.pid) as monitor:
                before = monitor.sample()
                tally = asyncio.run(Crowd(server.port, mix, CALLERS, rate).run(60 * MINUTES))
                time.sleep(2)
                after = monitor.sample()
        assert server.stop() == 0
    middle_mb, last_mb = mean_memory(monitor)
    write(record, tally, capacity, rate, before, after, middle_mb, last_mb)
    check_bounds(tally, capacity, before, after)
    assert last_mb < 1.05 * middle_mb + 5


def mean_memory(monitor: ResourceMonitor) -> tuple[float, float]:
    """The means of the middle and the last fifth: a sample depends on what is computed at its moment."""
    fifth = max(1, len(monitor.samples) // 5)
    middle_mb, last_mb = (
        fmean(sample.memory_mb for sample in samples)
        for samples in (monitor.samples[2 * fifth : 3 * fifth], monitor.samples[-fifth:])
    )
    return middle_mb, last_mb


def check_bounds(tally: Tally, capacity: Tally, before: Sample, after: Sample) -> None:
    assert tally.wrong_answers == []
    assert tally.broken_connections == []
    assert tally.refused > 0, "no request was refused: this was no overload"
    assert after.files <= before.files + 2
    assert after.threads <= before.threads + 8, "thread pools may grow to their size"
    assert tally.quantile_s(0.99) < MAX_SLOWDOWN * capacity.quantile_s(0.99)


def write(
    record: Record,
    tally: Tally,
    capacity: Tally,
    rate: float,
    before: Sample,
    after: Sample,
    middle_mb: float,
    last_mb: float,
) -> None:
    figures = record.table(f"Figures of {MINUTES:g} minutes")
    for subject, value in {
        "requests offered a second": rate,
        "requests asked": tally.requests,
        "requests asked a second": tally.requests / (60 * MINUTES),
        "times the capacity": 2 * tally.requests / (60 * MINUTES) / rate,
        "accepted": len(tally.accepted_s),
        "refused with 429": tally.refused,
        "callers who left": tally.disconnected,
        "wrong answers": len(tally.wrong_answers),
        "broken connections": len(tally.broken_connections),
        "median of accepted, ms": tally.quantile_s(0.5) * 1e3,
        "99th percentile at the capacity, ms": capacity.quantile_s(0.99) * 1e3,
        "99th percentile of accepted, ms": tally.quantile_s(0.99) * 1e3,
        "mean memory in the middle fifth, MB": middle_mb,
        "mean memory in the last fifth, MB": last_mb,
        "memory of the server before, MB": before.server_mb,
        "memory of the server after, MB": after.server_mb,
        "open files before": before.files,
        "open files after": after.files,
        "threads before": before.threads,
        "threads after": after.threads,
    }.items():
        figures.add(subject, {}, [float(value)])
    p99 = record.table("99th percentile of accepted requests", unit="ms")
    for kind, durations_s in sorted(tally.durations_s.items()):
        p99_ms = tally.quantile_s(0.99, kind) * 1e3
        p99.add("accepted", {"kind": kind}, [p99_ms], f"{len(durations_s)} requests")
    answers = record.table("Answers by kind and status", unit="answers")
    for (kind, status), count in sorted(tally.answers.items()):
        answers.add(str(status), {"kind": kind}, [count])
    record.note(
        f"One worker on one CPU with {MAX_CONCURRENT_REQUESTS} places, {CALLERS} callers on another, "
        "at twice the rate served."
    )
    record.write()
