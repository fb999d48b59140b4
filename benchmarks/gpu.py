"""Texts and clouds on a GPU: whether the answers are those of the CPU, and the throughput.

    python -m benchmarks.gpu                     needs a CUDA device, the extra gpu and torch for CUDA
    python -m benchmarks.gpu --provider cpu      the same code on the CPU, to test this program

* answers: how many of 1,024 sentences have another answer than on the CPU. There should be none.
* chunks: the encoder alone, by the number of chunks of 64 tokens in a run, next to a soft transformer of the
  same shape in float16, and to the encoder's matrix products alone (the roofline), both in torch.
* sentences: the whole pipeline in process, with and without leaders.
* clouds: layers, next to plain torch: one matrix product, one argmax, one gather.

Everything starts from arrays or texts in main memory and ends there, after one warm run. `--patience` is the
seconds for each case: slower cases are repeated less often, and slower clouds are left out.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.models import DISTILBERT, random_twin, served
from benchmarks.record import PRETRAINED, Record, Table, run_times
from benchmarks.reviews import reviews
from hardmax.models.texts import Explain
from model_export.encoder.layer import Linear
from service.cloud.dynamics import Dynamics, Parameters
from service.runtime.bundle import read_bundle
from service.runtime.session import Runtime
from service.settings import PRETRAINED_FOLDER
from service.text.tokenizer import CHUNK_TOKENS, Chunk

REPEATS = 5
PATIENCE_S = 60.0
CHUNKS = (1, 16, 64, 256, 1_024)
SENTENCES = 1_024
CLOUDS = tuple((n, d) for n in (1_000, 10_000, 100_000, 1_000_000) for d in (2, 4, 8, 16, 64))
LAYERS = 4
TILE = 1 << 27  # scores of one tile of queries: 1 GB of float64
Clock = Callable[[Callable[[], object]], list[float]]  # the seconds of each run


def main() -> None:
    parser = argparse.ArgumentParser(description="Texts and clouds on a GPU, next to torch")
    parser.add_argument("--provider", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_S, help="seconds for each case (default: %(default)s)"
    )
    arguments = parser.parse_args()
    record = Record(f"gpu-{arguments.provider}", "On a GPU", packages=["numpy", "torch"], models=PRETRAINED)
    record.note(f"device: {torch.cuda.get_device_name() if arguments.provider == 'cuda' else 'CPU'}")
    runtime = Runtime(arguments.provider, intra_op_threads=torch.get_num_threads())
    n_different = count_different_answers(runtime, reviews(22, SENTENCES))
    record.note(f"answers that differ from those of the CPU: {n_different} of {SENTENCES}")
    clock = partial(run_times, repeats=REPEATS, budget_s=arguments.patience)
    measure_chunks(record.table("Encoder alone", unit="chunks/s", better="higher"), runtime, clock)
    table = record.table("Sentences of 22 words", unit="sentences/s", better="higher")
    measure_sentences(table, runtime, reviews(22, SENTENCES), clock)
    measure_clouds(
        record.table("Layers of a cloud", unit="layers/s", better="higher"),
        runtime,
        clock,
        arguments.patience,
    )
    record.write()


def count_different_answers(runtime: Runtime, texts: Sequence[str]) -> int:
    """Return how many texts have another answer than on the CPU, in any digit."""
    cpu = Runtime("cpu", torch.get_num_threads())
    answers = (served(PRETRAINED[1], device).classify(texts, "full") for device in (runtime, cpu))
    return sum(a != b for a, b in zip(*answers, strict=True))


def measure_sentences(table: Table, runtime: Runtime, texts: Sequence[str], clock: Clock) -> None:
    model = served(PRETRAINED[1], runtime)
    modes: tuple[Explain, ...] = ("none", "leaders")
    for explain in modes:
        run = partial(model.classify, texts, explain)
        table.add("ours", {"explain": explain}, [len(texts) / s for s in clock(run)])


@torch.inference_mode()
def measure_chunks(table: Table, runtime: Runtime, clock: Clock, cases: Any = CHUNKS) -> None:
    encoder = served(PRETRAINED[1], runtime).encoder
    half = torch.float16 if runtime.provider == "cuda" else torch.float32
    width, hidden = DISTILBERT.width, DISTILBERT.hidden
    weights = [part.weight.T for part in random_twin().modules() if isinstance(part, Linear)]
    products = [weight.to(runtime.provider) for weight in weights]
    soft = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(width, DISTILBERT.heads, hidden, batch_first=True), DISTILBERT.layers
    ).to(runtime.provider, half).eval()  # fmt: skip
    tokens = np.random.default_rng(0).integers(1_000, 20_000, (max(cases), CHUNK_TOKENS))
    for n in cases:  # of random tokens: the speed hardly depends on them
        chunks: list[Chunk] = [(row, np.arange(CHUNK_TOKENS)) for row in tokens[:n]]
        states = torch.randn(n, CHUNK_TOKENS, width).to(runtime.provider, half)
        inputs = [torch.randn(n * CHUNK_TOKENS, len(weight), device=runtime.provider) for weight in products]

        def soft_transformer(states: Any = states) -> None:
            soft(states).cpu()

        def roofline(inputs: Any = inputs) -> None:
            for x, weight in zip(inputs, products, strict=True):
                product = x @ weight
            product[0, 0].item()  # waits for the device

        subjects: dict[str, Callable[[], object]] = {
            "ours": partial(encoder.encode, chunks, output_attentions=False),
            "soft, torch": soft_transformer,
            "products alone": roofline,
        }
        for subject, run in subjects.items():
            table.add(subject, {"chunks": n}, [n / s for s in clock(run)])


def measure_clouds(
    table: Table, runtime: Runtime, clock: Clock, patience_s: float = PATIENCE_S, cases: Any = CLOUDS
) -> None:
    """Add `LAYERS` layers of Gaussian clouds of (points, dimension), without stopping at the certificate.

    A case that would be too slow if its time grew with the square of the points is left out.
    """
    dynamics = Dynamics.load(read_bundle(PRETRAINED_FOLDER / "dynamics"), runtime)
    parameters = Parameters(alpha=1.0, max_layers=LAYERS, stop="never", include=frozenset())
    unit_s: dict[tuple[str, int], float] = {}  # seconds per squared number of points, of the last case
    for n, d in cases:
        points = np.random.default_rng(n + d).standard_normal((n, d))

        def hardmax_layers(points: Any = points) -> None:
            assert dynamics.run(points, parameters).layers == LAYERS

        def plain_layers(points: Any = points) -> None:
            torch_layers(torch.from_numpy(points).to(runtime.provider), alpha=1.0, layers=LAYERS).cpu()

        for subject, run in (("ours", hardmax_layers), ("torch", plain_layers)):
            case, expected_s = {"points": n, "d": d}, unit_s.get((subject, d), 0.0) * n**2
            if expected_s > patience_s:
                table.add(subject, case, [], f"left out: up to {expected_s:.0f} s")
                continue
            samples = clock(run)
            unit_s[subject, d] = min(samples) / n**2
            table.add(subject, case, [LAYERS / s for s in samples])


@torch.inference_mode()
def torch_layers(Z: torch.Tensor, alpha: float, layers: int) -> torch.Tensor:
    """Run plain layers with A = I, in tiles of queries so that the scores fit: [n,d] -> [n,d]."""
    gamma = alpha / (1 + alpha)
    tile = max(1, TILE // len(Z))
    for _ in range(layers):
        leader = torch.cat([(Z[i : i + tile] @ Z.T).argmax(1) for i in range(0, len(Z), tile)])
        Z = Z + gamma * (Z[leader] - Z)
    return Z


if __name__ == "__main__":
    main()
