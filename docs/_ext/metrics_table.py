"""The directive `metrics-table`: one row per metric of the service, from its own registry."""

from docutils import nodes
from docutils.statemachine import StringList
from prometheus_client.metrics import MetricWrapperBase
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from service.observability import metrics


def rows() -> list[str]:
    """Return the rows of the table: the name that Prometheus shows, type, labels, meaning."""
    table = []
    for metric in metrics.Metrics()._registry._collector_to_names:  # no public call lists label names
        if isinstance(metric, MetricWrapperBase):
            name = f"{metric._name}_total" if metric._type == "counter" else metric._name
            labels = ", ".join(f"`{label}`" for label in metric._labelnames)
            table.append(f"| `{name}` | {metric._type} | {labels} | {metric._documentation} |")
    return table


class MetricsTable(SphinxDirective):
    """Render the table."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(metrics.__file__)
        table = ["| metric | type | labels | meaning |", "|---|---|---|---|", *rows()]
        container = nodes.container()
        self.state.nested_parse(StringList(table, source=metrics.__file__), self.content_offset, container)
        return [container]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("metrics-table", MetricsTable)
    return {"parallel_read_safe": True}
