"""The service extended like any FastAPI application: routes, dependencies, middleware, error handlers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from bundles import write_head
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from paths import ROOT
from pydantic import BaseModel
from server import in_process

from service.app import create_app
from service.errors import NotFound
from service.http.dependencies import REQUIRE_API_KEY
from service.settings import Settings


async def legs_per_pair() -> int:
    return 2


class Pet(BaseModel):
    name: str
    legs: int = 4


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model tiny and its encoder alone."""
    folder = tmp_path_factory.mktemp("models")
    write_head(folder)
    return folder


@pytest.fixture
def app(models: Path) -> FastAPI:
    return build(models)


def build(models: Path, **settings: Any) -> FastAPI:
    return create_app(
        Settings(
            models_dir=models, pretrained_models=False, default_model="tiny", log_level="error", **settings
        )
    )


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


def test_custom_route_has_a_body_and_a_dependency_as_in_any_application(
    app: FastAPI, client: TestClient
) -> None:
    app.openapi()  # the document is made again when there is a new route

    @app.post("/pets")
    async def add(pet: Pet, pair: Annotated[int, Depends(legs_per_pair)]) -> dict[str, Any]:
        return {"name": pet.name, "pairs": pet.legs // pair}

    assert client.post("/pets", json={"name": "Rex"}).json() == {"name": "Rex", "pairs": 2}
    response = client.post("/pets", json={"nome": "Rex"})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (422, "invalid_input", "name")
    assert error["request_id"] == response.headers["x-request-id"]
    malformed = client.post("/pets", content=b"{", headers={"content-type": "application/json"})
    assert malformed.json()["error"]["message"].startswith("the body is not JSON")
    assert client.get("/pet").json()["error"]["message"] == "there is no such route; did you mean /pets?"
    assert {"Pet", "ClassifyRequest"} <= app.openapi()["components"]["schemas"].keys()


def test_custom_route_raises_errors_of_the_service_and_of_fastapi(app: FastAPI, client: TestClient) -> None:
    @app.get("/pets/{name}")
    async def find(name: str) -> None:
        if name == "service":
            raise NotFound("no pet has this name", param="name")
        raise HTTPException(404, "no such pet")

    service, fastapi = client.get("/pets/service"), client.get("/pets/fastapi")
    assert [response.status_code for response in (service, fastapi)] == [404, 404]
    assert service.json()["error"]["message"] == "no pet has this name"
    assert service.json()["error"]["param"] == "name"
    assert fastapi.json()["error"]["message"] == "no such pet"
    assert {response.json()["error"]["type"] for response in (service, fastapi)} == {"not_found"}


def test_keys_guard_custom_routes_too_and_can_be_overridden(models: Path) -> None:
    app = build(models, api_keys="secret")

    @app.get("/pets")
    async def pets() -> str:
        return "Rex"

    async def allow() -> None:
        pass

    with TestClient(app) as client:
        for ask in (lambda: client.get("/pets"), lambda: client.post("/classify", json={"input": "superb"})):
            assert ask().status_code == 401
            client.headers["authorization"] = "Bearer secret"
            assert ask().status_code == 200
            del client.headers["authorization"]
        for key in REQUIRE_API_KEY:
            app.dependency_overrides[key.dependency] = allow
        assert client.get("/pets").status_code == 200
        assert client.post("/classify", json={"input": "superb"}).status_code == 200


def test_every_route_answers_below_a_root_path(app: FastAPI) -> None:
    with TestClient(app, root_path="/api") as client:
        assert client.post("/classify", json={"input": "superb"}).status_code == 200
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/models/tiny").json()["name"] == "tiny"
        assert client.get("/openapi.json").json()["servers"] == [{"url": "/api"}]
        assert client.get("/").text.lstrip().lower().startswith("<!doctype html>")
        assert client.get("/web/page.js").status_code == 200
        assert client.get("/v2/nowhere").json() == {"error": "there is no such route; GET /docs lists them"}


@pytest.mark.parametrize("prefix", ["", "/sentiment"])
def test_setting_of_a_root_path_serves_gateways_that_strip_it_and_those_that_do_not(
    models: Path, prefix: str
) -> None:
    with in_process(models, root_path="/sentiment/") as client:
        assert client.post(f"{prefix}/classify", json={"input": "superb"}).status_code == 200
        assert client.post(prefix or "/", json={"inputs": "superb"}).status_code == 200
        assert client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/sentiment"}]
        assert client.get(f"{prefix}/v2/nowhere").json()["error"].startswith("there is no such route")
        assert client.get(f"{prefix}/clasify").json()["error"]["message"].endswith("did you mean /classify?")
        assert client.get(f"{prefix}/web/page.js").status_code == 200
        for path in (prefix or "/", f"{prefix}/", f"{prefix}/docs"):
            page = client.get(path).text
            links = re.findall(r'(?:href|src)="(?!\w+:|#)([^"]*)"', page)
            assert links, path
            absolute = [link for link in links if link.startswith("/")]
            assert [link for link in absolute if not link.startswith("/sentiment/")] == []
        assert client.get("/sentimental/health").status_code == 404


def test_application_can_be_mounted_in_another(app: FastAPI) -> None:
    outer = FastAPI(lifespan=app.router.lifespan_context)
    outer.mount("/hardmax", app)
    with TestClient(outer) as client:
        response = client.post("/hardmax/classify", json={"input": "superb"})
        assert (response.status_code, response.json()["data"][0]["label"]) == (200, "positive")
        assert client.get("/hardmax/nowhere").json()["error"]["type"] == "not_found"


def test_route_of_the_contributors_manual_works(app: FastAPI, client: TestClient) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    module: dict[str, Any] = {"__name__": "labels"}
    exec(compile(example, "CONTRIBUTING.md", "exec"), module)
    app.include_router(module["router"])
    texts = ["a superb film", "a dull, bad film"]
    response = client.post("/labels", json={"input": texts})
    assert response.status_code == 200, response.text
    data = client.post("/classify", json={"input": texts}).json()["data"]
    assert response.json() == [entry["label"] for entry in data]
    assert client.post("/labels", json={"text": "x"}).json()["error"]["param"] == "input"
    assert client.post("/labels", json={"input": ["x", " "]}).json()["error"]["param"] == "input[1]"
    assert "/labels" in app.openapi()["paths"]
