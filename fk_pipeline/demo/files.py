"""The files of the demo: those that the package ships, and their copies in a folder of the user."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from fk_pipeline.errors import UsageError
from fk_pipeline.spec import PipelineSpec, load_spec
from fk_pipeline.spec.project import CASES

PIPELINE_FILE = "flight_planes.yaml"
_CASES = f"flight_planes{CASES}"
_SIDES = ("flights", "planes")


def demo_spec(folder: Path) -> PipelineSpec:
    """Returns the pipeline of the demo as if its file were in a folder; the folder need not exist."""
    with as_file(files(__package__) / "data" / PIPELINE_FILE) as shipped:
        spec = load_spec(shipped)
    return spec.model_copy(update={"file": folder / PIPELINE_FILE, "texts": ()})


def batches() -> list[int]:
    """Returns the numbers of the batches that the package ships, in order."""
    landing = files(__package__) / "data" / "landing"
    return sorted({int(f.name[:8]) for side in _SIDES for f in (landing / side).iterdir() if f.name[:8].isdigit()})


def prepare_demo(folder: Path) -> Path:
    """Creates the folder of the demo, without any batch, and returns its pipeline file; replaces an earlier demo.

    Raises:
        UsageError: the folder is not empty and contains no demo.
    """
    file = folder / PIPELINE_FILE
    if folder.exists() and any(folder.iterdir()) and not file.exists():
        raise UsageError(f"{folder} is not empty and holds no demo", fix="name another folder: fk-pipeline demo DIR")
    for part in ("landing", "warehouse"):
        shutil.rmtree(folder / part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (PIPELINE_FILE, "README.md", _CASES):  # first: a folder without the file would not be taken for a demo
        (folder / name).write_bytes((files(__package__) / "data" / name).read_bytes())
    for side in _SIDES:
        (folder / "landing" / side).mkdir(parents=True)
    return file


def land(folder: Path, batch: int) -> list[Path]:
    """Copies the files of a batch into the landing folders and returns them; each is renamed once it is complete."""
    landed = []
    for side in _SIDES:
        source = files(__package__) / "data" / "landing" / side / f"{batch:08d}.jsonl.gz"
        if source.is_file():
            target = folder / "landing" / side / source.name
            part = target.with_name(f".{target.name}")
            part.write_bytes(source.read_bytes())
            landed.append(part.rename(target))
    return landed
