"""The two Delta JARs that Spark needs: their folder, and how to fetch them.

The first session fetches them (`bring`), or the person who prepares the environment does, with
`python -m fk_pipeline.environment.jars`; once they are in the folder, no session uses the network. They come from Maven
Central, from a mirror (`--base-url` or FK_MAVEN_BASE_URL) or from a folder (`--from-dir`, also with the layout of a
Maven repository), and are used only if their SHA-256 is the one below. The settings of urllib apply: HTTPS_PROXY,
NO_PROXY, SSL_CERT_FILE. The base URL may contain a user name and password.

To use Spark's own Ivy settings (`spark.jars.packages`, `spark.jars.ivySettings`) instead, set them in the pipeline file
under `settings.spark`: with `spark.jars.packages` set, a session does not use these JARs.

This file imports only the standard library and the error types: it runs before anything else is installed.
"""

import argparse
import base64
import hashlib
import os
import shutil
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fk_pipeline.errors import EnvironmentNotFit, escaped

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
FETCH_COMMAND = "python -m fk_pipeline.environment.jars"
BRINGING = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
"""Session settings with which the pipeline file provides all JARs, also those of Delta; the JARs here are not used."""

_TIMEOUT_SECONDS = 60
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True)
class Jar:
    """A file of a Maven repository, with the SHA-256 that it must have."""

    artifact: str
    version: str
    sha256: str
    group: str = "io.delta"

    @property
    def coordinates(self) -> str:
        """`group:artifact:version`, as in Spark's `spark.jars.packages`."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name of the file: `artifact-version.jar`."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """The path of the file in a Maven repository, relative to the repository's root."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


# Two are enough, on Spark's own class path: the others that Ivy would fetch are older versions of JARs of Spark.
DELTA_JARS = (
    Jar("delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
    Jar("delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)


WHY_NEEDED = "Spark reads and writes the tables with the two Delta JARs"
WAYS = (
    "behind a mirror of Maven Central set FK_MAVEN_BASE_URL to its address (file:///folder too); "
    f"without a network bring the two JARs yourself and run '{FETCH_COMMAND} --from-dir DIR', "
    "or set FK_JARS_DIR to the folder that has them"
)


def jar_folder() -> Path:
    """Returns the folder of the JARs: FK_JARS_DIR, else a folder of this Python environment."""
    override = os.environ.get("FK_JARS_DIR")
    return Path(override) if override else Path(sys.prefix) / "share" / "fk-pipeline" / "jars"


def base_address(base_url: str | None = None) -> str:
    """Returns the URL of the repository of the JARs, without user name and password."""
    return _split(_base(base_url))[0]


def _base(base_url: str | None) -> str:
    return (base_url or os.environ.get("FK_MAVEN_BASE_URL") or MAVEN_CENTRAL).rstrip("/")


def jar_paths() -> tuple[Path, ...]:
    """Returns the paths of the JARs, in the order of `DELTA_JARS`; their SHA-256 is checked, which takes 10 ms.

    Raises:
        EnvironmentNotFit: a JAR is missing, or has another SHA-256.
    """
    verify_jars()
    return tuple(jar_folder() / jar.file_name for jar in DELTA_JARS)


def _tell(text: str) -> None:
    print(escaped(text), file=sys.stderr, flush=True)


def bring(tell: Callable[[str], None] = _tell) -> tuple[Path, ...]:
    """Returns the paths of the JARs for a session; fetches those that are missing or damaged, else uses no network.

    Two processes may do it at the same time: each writes a file of its own, and the last one to rename it wins.

    Args:
        tell: called with a sentence before each fetch; by default it prints to stderr.

    Raises:
        EnvironmentNotFit: the JARs could not be fetched, or not be written.
    """
    with suppress(EnvironmentNotFit):
        return jar_paths()
    fetch(tell=tell)
    return jar_paths()


def wrong_jars(folder: Path | None = None, jars: Sequence[Jar] | None = None) -> list[str]:
    """Returns one phrase per JAR (by default of Delta) that is missing or has another SHA-256; empty if none is."""
    folder = folder or jar_folder()
    wrong = []
    for jar in DELTA_JARS if jars is None else jars:
        path = folder / jar.file_name
        if not path.is_file():
            wrong.append(f"{jar.file_name} is missing")
        elif _sha256(path) != jar.sha256:
            wrong.append(f"{jar.file_name} has another SHA-256")
    return wrong


def verify_jars(folder: Path | None = None, jars: Sequence[Jar] | None = None) -> None:
    """Raises `EnvironmentNotFit` unless every JAR (by default of Delta) exists with its SHA-256."""
    wrong = wrong_jars(folder, jars)
    if wrong:
        raise EnvironmentNotFit(
            f"in {folder or jar_folder()} {' and '.join(wrong)}", why=WHY_NEEDED, fix=f"run {FETCH_COMMAND}"
        )


def fetch(
    base_url: str | None = None,
    from_dir: Path | None = None,
    target: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
    jars: Sequence[Jar] | None = None,
) -> list[Path]:
    """Fetches the JARs (by default of Delta) that are missing or damaged into `target`; returns their paths.

    They come from `from_dir` if given, else from `base_url`, FK_MAVEN_BASE_URL or Maven Central. Each is checked under
    a temporary name and then renamed into place, so that a half-written or wrong one is never used.

    Raises:
        EnvironmentNotFit: a JAR could not be fetched, or not be written.
    """
    target = target or jar_folder()
    return [
        _bring(jar, _base(base_url), from_dir, target, tell)
        for jar in (DELTA_JARS if jars is None else jars)
        if not (target / jar.file_name).is_file() or _sha256(target / jar.file_name) != jar.sha256
    ]


def _bring(jar: Jar, base_url: str, from_dir: Path | None, target: Path, tell: Callable[[str], None]) -> Path:
    try:
        target.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{jar.file_name}.", dir=target)
    except OSError as error:
        raise EnvironmentNotFit(
            f"{target} cannot be written ({error.strerror}), and {jar.file_name} is missing or damaged there",
            why=WHY_NEEDED,
            fix="set FK_JARS_DIR to a folder of yours, and the next session fetches them into it; or let somebody who "
            f"may write {target} run {FETCH_COMMAND}",
        ) from error
    temporary = Path(name)
    try:
        _remove_abandoned(target)
        with os.fdopen(handle, "wb") as out:
            origin = _download(jar, base_url, target, out, tell) if from_dir is None else _copy(jar, from_dir, out)
        digest = _sha256(temporary)
        if digest != jar.sha256:
            raise EnvironmentNotFit(
                f"{origin} is not {jar.coordinates} (SHA-256 {digest[:12]}..., expected {jar.sha256[:12]}...)",
                why=f"it was not used. {WHY_NEEDED}",
                fix="look at what that address serves, or name another by FK_MAVEN_BASE_URL or --from-dir",
            )
        temporary.chmod(0o644)
        return temporary.replace(target / jar.file_name)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _remove_abandoned(target: Path) -> None:
    """Removes files that fetches which died have left: nothing was written to them for an hour."""
    for file in target.glob(".*.jar.*"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime >= _ABANDONED_SECONDS:
                file.unlink()


def _copy(jar: Jar, folder: Path, out: IO[bytes]) -> str:
    for path in (folder / jar.file_name, folder / jar.repository_path):
        if path.is_file():
            with path.open("rb") as source:
                shutil.copyfileobj(source, out)
            return str(path)
    raise EnvironmentNotFit(
        f"{folder} has no {jar.file_name}", why=WHY_NEEDED, fix=f"put {jar.coordinates} of any Maven repository there"
    )


def _download(jar: Jar, base_url: str, target: Path, out: IO[bytes], tell: Callable[[str], None]) -> str:
    request, address = _request(f"{base_url}/{jar.repository_path}")
    tell(f"fetching {address} into {target} (once; sessions need no network afterwards)")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            shutil.copyfileobj(response, out)
    except (OSError, ValueError) as error:  # URLError and time-outs are OSErrors; a malformed URL is a ValueError
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # the error keeps the connection open
        raise EnvironmentNotFit(
            f"{address} could not be loaded: {_reason(error)}", why=WHY_NEEDED, fix=_way_out(error)
        ) from error
    return address


def _request(url: str) -> tuple[urllib.request.Request, str]:
    """Returns the request, and its URL without user name and password, for messages."""
    address, login = _split(url)
    try:
        request = urllib.request.Request(address)
    except ValueError as error:
        raise EnvironmentNotFit(
            f"{address!r} is no URL", fix="give FK_MAVEN_BASE_URL or --base-url as https://host/path or file:///folder"
        ) from error
    if login:  # not sent on to the host of a redirect
        token = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request, address


def _split(url: str) -> tuple[str, str]:
    """Returns a URL without user name and password, and the user name and password."""
    parts = urllib.parse.urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), login


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    return str(error.reason if isinstance(error, urllib.error.URLError) else error)


def _way_out(error: Exception) -> str:
    if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
        return f"set SSL_CERT_FILE to the file with your network's certificates; or {WAYS}"
    return WAYS


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetches the JARs, or with --verify only checks them; returns the exit status: 0, or 3 if a JAR is not right."""
    parser = argparse.ArgumentParser(prog=FETCH_COMMAND, description="Bring the JARs into this environment.")
    parser.add_argument("--from-dir", type=Path, metavar="DIR", help="copy them from a folder instead of downloading")
    parser.add_argument("--base-url", metavar="URL", help=f"a Maven repository (default: {MAVEN_CENTRAL})")
    parser.add_argument("--verify", action="store_true", help="only check that they are there and right")
    parser.add_argument("--s3", action="store_true", help="besides Delta's those for s3a:// paths (12 MB)")
    options = parser.parse_args(arguments)
    jars = list(DELTA_JARS)
    if options.s3:
        from fk_pipeline.environment.s3_jars import S3_JARS

        jars += S3_JARS
    try:
        if options.verify:
            verify_jars(jars=jars)
        else:
            for path in fetch(options.base_url, options.from_dir, tell=_tell, jars=jars):
                print(f"fetched {path}")
    except EnvironmentNotFit as error:
        print(error, file=sys.stderr)
        return 3
    print(f"{'Delta and S3' if options.s3 else 'Delta'} JARs are in {jar_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
