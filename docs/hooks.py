"""What mkdocs does to these pages, so that one text is right on the site and where the code lies.

Links that lead out of docs/ (an example, a README, a test) lead to a page of the site that shows the file. What the
site cannot show is a warning, and so an error of `make docs`.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks")

OUTSIDE = "source"  # the folder of the site that has the files from outside docs/
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?=[#)])")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".service": "ini", ".toml": "toml"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds a page for every file outside docs/ that a page links to, and for those that it links to."""
    root = _root(config)
    pending = [page.src_uri for page in files.documentation_pages()]
    while pending:
        uri = pending.pop()
        page = files.get_file_from_path(uri)
        assert page is not None
        for link in _links(page.content_string):
            target = _resolved(link, uri, root)
            if target and not target.startswith("docs/") and not files.get_file_from_path(_uri(target, root)):
                files.append(File.generated(config, _uri(target, root), content=_shown(target, root)))
                pending.append(_uri(target, root))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_others: object) -> str:
    """The page with its links as the site needs them."""
    root, uri = _root(config), page.file.src_uri
    if "```mermaid" in markdown and not uri.startswith(f"{OUTSIDE}/"):
        log.warning("%s: mermaid is not drawn without a script from another host; link to an SVG instead", uri)

    def rewritten(match: re.Match[str]) -> str:
        target = _resolved(match["path"], uri, root)
        if target is None or (target.startswith("docs/") and not uri.startswith(f"{OUTSIDE}/")):
            return match["path"]
        return posixpath.relpath(_uri(target, root), posixpath.dirname(uri))

    return "\n".join(LINK.sub(rewritten, line) if prose else line for prose, line in _lines(markdown))


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


def _lines(markdown: str) -> Iterator[tuple[bool, str]]:
    """The lines of a page, each with whether it is prose: not code."""
    fence = None
    for line in markdown.split("\n"):
        mark = re.match(r" *(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark[1]
            yield False, line
        elif mark and fence is not None and line.strip() == fence:
            fence = None
            yield False, line
        else:
            yield fence is None, line


def _links(markdown: str) -> Iterator[str]:
    for prose, line in _lines(markdown):
        if prose:
            yield from (match["path"] for match in LINK.finditer(line))


def _resolved(link: str, uri: str, root: Path) -> str | None:
    """Where a link on the page `uri` of the site leads to, from the root of the repository; None: nowhere in it."""
    if uri.startswith(f"{OUTSIDE}/"):
        place = uri.removeprefix(f"{OUTSIDE}/").removesuffix("/index.md" if uri.endswith("/index.md") else ".md")
        folder = place if (root / place).is_dir() else posixpath.dirname(place)
    else:
        folder = posixpath.dirname(f"docs/{uri}")
    target = posixpath.normpath(posixpath.join(folder, link))
    return target if not target.startswith("..") and (root / target).exists() else None


def _uri(target: str, root: Path) -> str:
    """The page of the site that shows a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if (root / target).is_dir():
        return f"{OUTSIDE}/{target}/index.md"
    return f"{OUTSIDE}/{target.removesuffix('.md')}.md"


def _shown(target: str, root: Path) -> str:
    """A page that shows a file, or what is in a folder."""
    file = root / target
    if file.is_dir():
        names = sorted(one.name for one in file.iterdir() if one.name[0] not in "._")
        text = f"# {target}\n\n" + "\n".join(f"* [{name}]({name})" for name in names)
    elif file.suffix == ".md":
        text = file.read_text()
    else:
        text = f"# {target}\n\n`````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text().rstrip()}\n`````"
    return f"---\nsearch:\n  exclude: true\n---\n\n{text}\n"
