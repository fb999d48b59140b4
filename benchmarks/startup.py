"""Start time and memory of the service, and how much of them is due to Python and its libraries.

    python -m benchmarks.startup [--repeats 7]

From the start of the process to the first 200 of /ready; memory is the resident set of all its processes.
"""

import subprocess
import sys
import time

from benchmarks.load import drive, post, send_request
from benchmarks.record import PRETRAINED, Record, argument_parser
from benchmarks.reviews import reviews
from benchmarks.servers import HARDMAX, free_port, process_tree

READY = b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
LIBRARIES = {
    "python alone": "pass",
    "numpy": "import numpy",
    "onnxruntime": "import onnxruntime",
    "fastapi": "import fastapi",
    "service.app": "import service.app",
}


def start(workers: int) -> tuple[float, float, float]:
    """Return the seconds to ready, the megabytes then, and those after some thousand requests."""
    port = free_port()
    flags = ["--port", str(port), "--workers", str(workers)]
    command = [sys.executable, "-m", "service.cli.main", "serve", *flags]
    start_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _is_ready(port):
            if process.poll() is not None:
                raise RuntimeError(f"hardmax serve ended with {process.returncode}")
            time.sleep(0.005)
        ready_s = time.perf_counter() - start_s
        fresh_mb = _memory_mb(process.pid)
        drive(port, [HARDMAX.request(text) for text in reviews(22, 64)], 16, 2.0, warm_s=0.0)
        send_request(port, post("/classify", b'{"input": "superb", "explain": "full"}'))
        return ready_s, fresh_mb, _memory_mb(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(port: int) -> bool:
    try:
        return send_request(port, READY)[0] == 200
    except OSError:
        return False


def _memory_mb(pid: int) -> float:
    return sum(process.memory_info().rss for process in process_tree(pid)) / 1e6


def imported(program: str) -> tuple[float, float]:
    """Return the seconds and the peak megabytes of a Python process that runs only this."""
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    seconds = time.perf_counter() - start_s
    print_status = "print(open('/proc/self/status').read())"
    output = subprocess.check_output([sys.executable, "-c", f"{program}\n{print_status}"], text=True)
    return seconds, int(output.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def main() -> None:
    options = argument_parser(__doc__, repeats=(5, "starts")).parse_args()
    repeats = 1 if options.quick else options.repeats
    record = Record("startup", "Start and memory", ["onnxruntime", "fastapi", "uvicorn"], PRETRAINED)
    times = record.table("From process start to ready", unit="s", better="lower")
    memory = record.table("Resident memory, all pretrained models loaded", unit="MB", better="lower")
    for workers in (1, 2):
        ready, fresh, used = zip(*(start(workers) for _ in range(repeats)), strict=True)
        times.add("ours", {"workers": workers}, ready)
        memory.add("ours", {"workers": workers, "when": "ready"}, fresh)
        memory.add("ours", {"workers": workers, "when": "after two seconds of load"}, used)
    parts = record.table("Start time of Python and libraries", unit="s")
    sizes = record.table("Memory of Python and libraries", unit="MB")
    for name, program in LIBRARIES.items():
        seconds, megabytes = zip(*(imported(program) for _ in range(repeats)), strict=True)
        parts.add(name, {}, seconds)
        sizes.add(name, {}, megabytes)
    record.write(quick=options.quick)


if __name__ == "__main__":
    main()
