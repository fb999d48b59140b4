"""What goes into /opt/hardmax in an image, and what is thrown out again; runs only while an image is built.

    python dependencies.py install cpu control     the requirements of these extras, at their locked versions
    python dependencies.py prune                    what no online process ever opens

Knows pyproject.toml and the virtual environment, nothing of our own code.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HOME = Path("/opt/hardmax")
SITE = HOME / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
# tokenizers asks for the hub's client, and only to download what we read from bundles.
UNUSED = ("huggingface_hub", "hf_xet", "fsspec", "filelock", "tqdm")
# clarabel takes BLAS from scipy.linalg, and we take nothing from scipy.
SCIPY_USED = ("_lib", "linalg")
UNUSED_FOLDERS = ("onnxruntime/transformers", "onnxruntime/tools", "onnxruntime/quantization")
# Test suites, and what only compilers and type checkers read.
UNUSED_NAMES = ("tests", "*.pyi", "*.pxd", "*.h", "*.hpp", "*.a")


def install(extras: list[str]) -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    locks = ["constraints.txt", *(["constraints-gpu.txt"] if "gpu" in extras else [])]
    pip("install", *(f"--constraint={lock}" for lock in locks), *wanted)


def prune() -> None:
    pip("uninstall", "--yes", *UNUSED)
    for name in UNUSED_FOLDERS:
        shutil.rmtree(SITE / name, ignore_errors=True)
    for folder in [*(SITE / "scipy").iterdir()]:
        if folder.is_dir() and folder.name not in SCIPY_USED:
            shutil.rmtree(folder)
    for name in UNUSED_NAMES:
        for path in [*SITE.rglob(name)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def pip(*arguments: str) -> None:
    subprocess.run(["pip", "--python", str(HOME / "bin/python"), *arguments, "--quiet"], check=True)


if __name__ == "__main__":
    prune() if sys.argv[1] == "prune" else install(sys.argv[2:])
