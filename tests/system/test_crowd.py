"""A thousand callers at once, of whom some disconnect: all others get right answers or documented errors."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from bundles import write_sequence_model
from server import Server, eventually, serving
from small_models import link_small_models

from service.runtime.compute import LANES
from tests.soak.crowd import Crowd, Tally
from tests.soak.mix import Mix, build_mix
from tests.soak.monitor import ResourceMonitor

pytestmark = pytest.mark.alone

CALLERS = 1000
PROCESSES = sum(lane.processes for lane in LANES)
# Of a worker: threads of the compute pool and of asyncio, and of compute processes; they start when needed.
POOL_THREADS = PROCESSES + len(LANES) + min(32, (os.cpu_count() or 1) + 4) + 2 * PROCESSES
KINDS = {
    "short text", "long text", "whole explanation", "batch of texts", "tensor of texts", "cloud", "sequences",
}  # fmt: skip
LONG_KINDS = {"long text", "batch of texts"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small pretrained models, and one of sequences."""
    folder = link_small_models(tmp_path_factory.mktemp("server") / "models")
    write_sequence_model(folder)
    return folder


@pytest.fixture(scope="module")
def mix(models: Path) -> Mix:
    """A mix with a quarter of the usual long requests: this tests their number, not their duration."""
    mix = build_mix(models)
    return [(share / 4 if scenarios[0].kind in LONG_KINDS else share, scenarios) for share, scenarios in mix]


def run_burst(server: Server, mix: Mix, callers: int) -> Tally:
    return asyncio.run(Crowd(server.port, mix, callers).burst(times=2, leaving=0.2, within_s=0.4))


def is_idle(server: Server) -> bool:
    """Whether no worker has a request or a queued item."""
    with server.client() as client:
        metrics = client.get("/metrics").text
    gauges = re.findall(r"^hardmax_(?:requests_in_flight|queue_depth\S*) (\S+)$", metrics, re.M)
    return len(gauges) == 3 and set(gauges) == {"0.0"}


@pytest.mark.parametrize(("workers", "max_requests"), [(1, 2 * CALLERS), (2, 256)])
def test_thousand_callers_get_right_answers_and_leak_nothing(
    models: Path, mix: Mix, workers: int, max_requests: int
) -> None:
    with serving(models, workers=workers, max_concurrent_requests=max_requests, log_level="error") as server:
        if workers > 1:
            eventually(lambda: len(server.workers) == workers)
        run_burst(server, mix, 64)  # starts the threads of pools
        eventually(lambda: is_idle(server))
        monitor = ResourceMonitor(server.process.pid)
        before = monitor.sample()
        tally = run_burst(server, mix, CALLERS)
        assert tally.wrong_answers == []
        assert tally.broken_connections == []
        assert tally.requests == 2 * CALLERS
        assert tally.disconnected > 20
        assert {kind for kind, status in tally.answers if status == 200} >= KINDS
        assert len(tally.accepted_s) > CALLERS // 2
        eventually(lambda: is_idle(server))
        eventually(lambda: monitor.sample().files <= before.files)
        assert monitor.sample().threads <= before.threads + POOL_THREADS * workers, (
            "pools may grow to their size"
        )
        assert server.stop() == 0
