"""The service asked by schemathesis: requests, right and wrong, drawn from its OpenAPI document alone.

An answer must have a documented status below 500; it knows nothing else of what is right. Every other
request that names a model by its path names one that is there, which chance would never do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

Counts = Counter[int]  # by status


def ask_operations(
    url: str, model: str, cases: int, failures: list[str], *, repeatable: bool
) -> Iterator[tuple[str, Counts]]:
    """Each operation of the document at `url` with what `cases` requests got; appends what was wrong."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    for result in schema.get_all_operations():
        operation = result.ok()
        yield operation.label, _ask(operation, model, cases, failures, repeatable)


def _ask(operation: Any, model: str, cases: int, failures: list[str], repeatable: bool) -> Counts:
    counts: Counts = Counter()

    @given(case=operation.as_strategy())
    @settings(
        max_examples=cases, deadline=None, database=None, derandomize=repeatable,
        suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    def holds(case: Any) -> None:
        if "name" in (case.path_parameters or {}) and counts.total() % 2:
            case.path_parameters["name"] = model
        answer = case.call(timeout=20)
        counts[answer.status_code] += 1
        documented = set(operation.definition.raw["responses"]) | {"405"}
        if answer.status_code >= 500 or str(answer.status_code) not in documented:
            failures.append(f"{operation.label}: {answer.status_code} for {case.as_curl_command()}"[:500])

    holds()
    return counts
