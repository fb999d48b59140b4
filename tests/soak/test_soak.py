"""Twice what the service can do, for MINUTES (10): answers right or documented refusals, nothing grows."""

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
from tests.soak.mix import prepare
from tests.soak.watch import Sample, Watch

MINUTES = float(os.environ.get("MINUTES", "10"))
CALLERS = 256  # enough that waiting for answers does not keep them from asking at twice the rate
PLACES = 32  # MAX_CONCURRENT_REQUESTS
CAPACITY_S = 8.0
P99_BOUND_S = 5.0


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_service_under_twice_its_capacity_stays_right_and_does_not_grow(small: Path) -> None:
    record = Record("soak", "Overload: twice the capacity", ["uvicorn", "onnxruntime"])
    mix = prepare(small)
    cpus = sorted(os.sched_getaffinity(0))
    with ExitStack() as running:
        with pinned({cpus[0]}):
            server = running.enter_context(serving(small, max_concurrent_requests=PLACES, log_level="error"))
        with pinned({cpus[-1]}):
            capacity = asyncio.run(Crowd(server.port, mix, PLACES // 2).ask_for(CAPACITY_S))
            rate = 2 * capacity.asked / CAPACITY_S
            with Watch(server.process.pid) as watch:
                before = watch.now()
                tally = asyncio.run(Crowd(server.port, mix, CALLERS, rate).ask_for(60 * MINUTES))
                time.sleep(2)
                after = watch.now()
        assert server.stop() == 0
    write(record, tally, rate, before, after)
    judge(tally, watch, before, after)


def judge(tally: Tally, watch: Watch, before: Sample, after: Sample) -> None:
    assert tally.wrong == []
    assert tally.broken == []
    assert tally.refused > 0, "nobody was refused: this was no overload"
    assert after.files <= before.files + 2
    assert after.threads <= before.threads + 8, "pools make threads when they first need them, and no more"
    fifth = max(1, len(watch.samples) // 5)  # a single sample is up or down: memory goes back every 16 s
    middle, last = (
        fmean(each.memory_mb for each in samples)
        for samples in (watch.samples[2 * fifth : 3 * fifth], watch.samples[-fifth:])
    )
    assert last < 1.05 * middle + 5
    assert tally.quantile_s(0.99) < P99_BOUND_S


def write(record: Record, tally: Tally, rate: float, before: Sample, after: Sample) -> None:
    figures = record.table(f"Figures of {MINUTES:g} minutes")
    for subject, value in {
        "requests offered a second": rate,
        "requests asked": tally.asked,
        "requests asked a second": tally.asked / (60 * MINUTES),
        "times the capacity": 2 * tally.asked / (60 * MINUTES) / rate,
        "accepted": len(tally.accepted_s),
        "refused with 429": tally.refused,
        "callers who left": tally.left,
        "wrong answers": len(tally.wrong),
        "broken connections": len(tally.broken),
        "median of accepted, ms": tally.quantile_s(0.5) * 1e3,
        "99th percentile of accepted, ms": tally.quantile_s(0.99) * 1e3,
        "memory before, MB": before.memory_mb,
        "memory after, MB": after.memory_mb,
        "open files before": before.files,
        "open files after": after.files,
        "threads before": before.threads,
        "threads after": after.threads,
    }.items():
        figures.add(subject, {}, [float(value)])
    took = record.table("99th percentile of accepted requests", unit="ms")
    for kind, seconds in sorted(tally.took_s.items()):
        took.add("accepted", {"kind": kind}, [tally.quantile_s(0.99, kind) * 1e3], f"{len(seconds)} requests")
    answers = record.table("Answers by kind and status", unit="answers")
    for (kind, status), count in sorted(tally.answers.items()):
        answers.add(str(status), {"kind": kind}, [count])
    record.note(
        f"One worker on one CPU with {PLACES} places, {CALLERS} callers on another, at twice the rate served."
    )
    record.write()
