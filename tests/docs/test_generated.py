"""The parts of the reference that the code says itself are what it says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generate() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        yield import_module("generate")


@pytest.fixture(scope="module")
def blocks(generate: ModuleType) -> dict[str, str]:
    found: dict[str, str] = generate.made()
    return found


@pytest.fixture
def pages(generate: ModuleType, blocks: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one page that has every block, as the code says it."""
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(generate, "made", lambda: blocks)
    text = "".join(f"By hand.\n<!--generated:{name}-->\n<!--end-->\n" for name in blocks)
    (tmp_path / "page.md").write_text(text)
    assert generate.main([]) == 0
    return tmp_path


def test_every_block_of_the_reference_is_what_the_code_says(
    generate: ModuleType, blocks: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "made", lambda: blocks)
    status = generate.main(["--check"])
    assert (status, capsys.readouterr().out) == (0, "")


def test_what_differs_is_told_and_not_written(
    generate: ModuleType, pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = pages / "page.md"
    page.write_text(page.read_text().replace("`retry_seconds`]", "`retry_minutes`]"))
    before = page.read_text()
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    told = capsys.readouterr().out
    assert "\n-* [`retry_minutes`]" in told
    assert "\n+* [`retry_seconds`]" in told
    assert page.read_text() == before


def test_what_differs_is_written_and_what_people_wrote_stays(generate: ModuleType, pages: Path) -> None:
    page = pages / "page.md"
    right = page.read_text()
    page.write_text(right.replace("`retry_seconds`]", "`retry_minutes`]").replace("By hand.", "By a hand.", 1))
    assert generate.main([]) == 0
    assert page.read_text() == right.replace("By hand.", "By a hand.", 1)


def test_a_block_that_no_page_has_is_told(
    generate: ModuleType, pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = pages / "page.md"
    page.write_text(page.read_text().replace("<!--generated:errors-->", ""))
    assert generate.main(["--check"]) == 1
    assert "the block 'errors' is in 0 pages, not in one" in capsys.readouterr().out


def test_a_block_that_nothing_makes_is_an_error(generate: ModuleType, pages: Path) -> None:
    (pages / "other.md").write_text("<!--generated:keys.setings-->\n<!--end-->\n")
    with pytest.raises(LookupError, match=r"nothing makes the block 'keys\.setings'; there are .*keys\.settings"):
        generate.main(["--check"])


def test_a_key_of_the_pipeline_file_without_a_meaning_is_an_error(generate: ModuleType) -> None:
    pipeline_file = import_module("blocks.pipeline_file")
    from fk_pipeline.spec.settings import Settings

    class More(Settings):
        silent: int = 1

    with pytest.raises(LookupError, match=r"More\.silent has no docstring below it"):
        pipeline_file._keys(More)
