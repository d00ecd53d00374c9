"""Examples as a user has them: copied into a folder of their own, and their modules imported from there."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A copy of an example, without what it made where it is."""

    def copied(name: str) -> Path:
        target = tmp_path_factory.mktemp("examples") / name
        shutil.copytree(EXAMPLES / name, target, ignore=shutil.ignore_patterns("warehouse", "__pycache__"))
        return target

    return copied


@pytest.fixture(scope="session")
def loaded() -> Callable[[Path], ModuleType]:
    """The module of a file."""

    def load(file: Path) -> ModuleType:
        found = importlib.util.spec_from_file_location(f"example_{file.parent.name}_{file.stem}", file)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    return load
