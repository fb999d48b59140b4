"""The service as an application of Ray Serve: replicas behind Ray's proxies, scaled by load.

    serve deploy deploy/ray/serve.yaml

The module is not called ray: Ray puts the folder of a driver's script on its workers' path, and would import
this module instead of itself.
"""

from typing import Any

from fastapi import FastAPI

from service.app import create_app
from service.errors import ConfigurationError, needs
from service.observability.logging import configure
from service.settings import Settings, load_settings

try:
    import ray
    from ray import serve
except ImportError as error:
    raise ConfigurationError(needs(__name__, "Ray", "ray")) from error


def application(flags: dict[str, Any]) -> serve.Application:
    """Return the Ray Serve application; `flags` are settings, as `args` of the configuration file."""
    # Ray's proxies listen under names of the cluster, which ALLOWED_HOSTS can restrict
    flags = {"host": "0.0.0.0", **flags}
    load_settings(**flags)  # an error is raised here, not in a replica
    apps: list[FastAPI] = []

    def build() -> FastAPI:
        apps.append(create_replica(load_settings(**{"intra_op_threads": assigned_cpus(), **flags})))
        return apps[0]

    class Replica:
        """Ray replaces a replica whose `check_health` raises."""

        def check_health(self) -> None:
            if apps:
                apps[0].state.service.check_health()

    return serve.deployment(serve.ingress(build)(Replica), name="Hardmax").bind()


def create_replica(settings: Settings) -> FastAPI:
    """Return the service in its own process, whose standard error Ray stores."""
    configure(settings.log_format, settings.log_level)
    app = create_app(settings)
    app.state.service.owns_process = True
    return app


def assigned_cpus() -> int:
    """Return the CPUs that Ray reserves for this actor: an inference should use no more threads."""
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
