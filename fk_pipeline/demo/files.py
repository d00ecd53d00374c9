"""The files of the demo: what the package ships, and the folder of the user's that it is copied to."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from fk_pipeline.errors import UsageError
from fk_pipeline.spec import PipelineSpec, load_spec

PIPELINE_FILE = "flight_planes.yaml"
_SIDES = ("flights", "planes")


def demo_spec(folder: Path) -> PipelineSpec:
    """The demo's pipeline as it would be in a folder; the folder need not exist."""
    with as_file(files(__package__) / "data" / PIPELINE_FILE) as shipped:
        spec = load_spec(shipped)
    return spec.model_copy(update={"file": folder / PIPELINE_FILE})


def batches() -> list[int]:
    """The batches that the package ships."""
    landing = files(__package__) / "data" / "landing"
    return sorted({int(f.name[:8]) for side in _SIDES for f in (landing / side).iterdir() if f.name[:8].isdigit()})


def prepare_demo(folder: Path) -> Path:
    """Makes the demo's folder anew, without any batch; returns its pipeline file.

    Raises:
        UsageError: the folder holds something that is not a demo.
    """
    file = folder / PIPELINE_FILE
    if folder.exists() and any(folder.iterdir()) and not file.exists():
        raise UsageError(f"{folder} is not empty and holds no demo", fix="name another folder: fk-pipeline demo DIR")
    for part in ("landing", "warehouse"):
        shutil.rmtree(folder / part, ignore_errors=True)
    for side in _SIDES:
        (folder / "landing" / side).mkdir(parents=True)
    for name in (PIPELINE_FILE, "README.md"):
        (folder / name).write_bytes((files(__package__) / "data" / name).read_bytes())
    return file


def land(folder: Path, batch: int) -> list[Path]:
    """Copies the files of a batch into the landing folders, complete files renamed into place; returns them."""
    landed = []
    for side in _SIDES:
        source = files(__package__) / "data" / "landing" / side / f"{batch:08d}.jsonl.gz"
        if source.is_file():
            target = folder / "landing" / side / source.name
            part = target.with_name(f".{target.name}")
            part.write_bytes(source.read_bytes())
            landed.append(part.rename(target))
    return landed
