"""The application, models and commands that the contract is checked against, in this process."""

import io
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from fastapi.testclient import TestClient
from paths import ROOT
from small_models import MODEL, link_small_models

from hardmax import create_app
from service.settings import load_settings

SECOND = "second"  # a copy of MODEL, for requests that name several models
SCENES = "scenes"  # an exact model of sequences
SCENE_ROWS = [
    {"sequence": [[0, 0], [1, 1]], "label": "calm"},
    {"sequence": [[0, 0], [5, 5]], "label": "storm"},
    {"sequence": [[2, 1]], "label": "calm"},
]
BASE = {"default_model": MODEL, "pretrained_models": False, "intra_op_threads": 1}
COLUMNS = "100"  # the width of the terminal


def write_models(folder: Path) -> Path:
    """Write the models that the contract needs: the small pretrained ones, and a few more."""
    shutil.copytree(link_small_models(folder) / MODEL, folder / SECOND)
    card = folder / SECOND / "card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"name": SECOND}))
    rows = folder / "scenes.jsonl"
    rows.write_text("\n".join(map(json.dumps, SCENE_ROWS)))
    code, _, stderr = run_command(
        "hardmax-export", ["exact", "--data", str(rows), "--out", str(folder / SCENES)]
    )
    assert code == 0, stderr
    rows.unlink()
    return folder


@contextmanager
def serving(models_dir: Path, **settings: Any) -> Iterator[TestClient]:
    """Run the application in this process with these settings."""
    app = create_app(load_settings({}, log_level="error", models_dir=models_dir, **(BASE | settings)))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def run_command(
    name: str,
    arguments: Sequence[str],
    *,
    stdin: str = "",
    folder: Path = ROOT,
    models_dir: Path | None = None,
) -> tuple[int, str, str]:
    """Run a console script in this process; return its exit code, standard output and standard error."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts[name].partition(":")
    main = getattr(import_module(module), function)
    stdout, stderr = io.StringIO(), io.StringIO()
    stdin_stream = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HARDMAX_")}
    environment |= {f"HARDMAX_{name.upper()}": str(value) for name, value in BASE.items()}
    environment |= {"COLUMNS": COLUMNS} | ({"HARDMAX_MODELS_DIR": str(models_dir)} if models_dir else {})
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "stdin", stdin_stream),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        chdir(folder),
    ):
        try:
            code = main(list(arguments))
        except SystemExit as error:
            code = error.code
    return int(code or 0), stdout.getvalue(), stderr.getvalue()
