"""The token of a Spark Connect server that we start: whoever has it may run code as the user of the server.

Spark takes the token from the environment of the server's process, which other users cannot read, unlike its command
line. Clients take it from a file that only its user may read. Its name has the port, so that nobody has to name it. It
lies in the Dagster home, and in a folder of the user, where a command finds it from any directory. Each start of a
server makes a new token.

Spark's own client sends a token with TLS only, or to a host that is called `localhost`, which another user's server may
be at the address ::1. So the token is sent as the header that it is, to 127.0.0.1 as well.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

from fk_pipeline.errors import EnvironmentNotFit

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - a name
"""The environment variable from which Spark takes the token."""

TOKEN_SETTING = "spark.connect.authenticate.token"  # noqa: S105 - a name
"""The setting of Spark with the token, which would be on the command line of the server."""

PORT = 15002
"""The port at which a Spark Connect server listens if nothing else is said."""

_OWN_ACCESS = re.compile(r";(token|use_ssl|authorization)=", re.IGNORECASE)
_TOKEN = re.compile(r"[!-~]+")
_MOST = 2**20
"""Characters that are read of a file; one that was cut has no line feed at its end."""


def dagster_home() -> Path:
    """Returns the Dagster home: DAGSTER_HOME, else `.dagster` in the working directory; absolute."""
    return Path(os.environ.get("DAGSTER_HOME") or ".dagster").absolute()


def is_this_machine(host: str) -> bool:
    """Returns whether a host name is that of this machine for its own programs only."""
    name = host.strip("[]").lower()
    return name in ("localhost", "::1") or name.startswith("127.")


def new_token(port: int, given: str = "") -> str:
    """Returns the token for a server that starts at a port of this machine, after it was written for its clients.

    Args:
        port: the port.
        given: the token, if the user has chosen one.

    Raises:
        EnvironmentNotFit: no file can be written.
    """
    token = given or secrets.token_urlsafe(32)
    problems = []
    for file in _files(port):
        try:
            write_private(file, token)
        except OSError as error:
            problems.append(str(error))
    if token_at(port) != token:
        raise EnvironmentNotFit(
            f"the token of the Spark server cannot be written: {'; '.join(problems) or 'it is not read back'}",
            where=str(next(_files(port), "")),
            why="without it every user of this machine could run code as you",
            fix="let DAGSTER_HOME, or XDG_STATE_HOME, name a folder of yours that can be written",
        )
    return token


def token_at(port: int, home: Path | None = None) -> str | None:
    """Returns the token of the latest server at a port; None if no file has it whole and for its user alone.

    Args:
        port: the port.
        home: the Dagster home of the server; default: that of this process.
    """
    tokens = [token for token in map(_read, _files(port, home)) if token is not None]
    return max(tokens)[1] if tokens else None


def forget_token(port: int, home: Path) -> None:
    """Removes the files with the token of a server that has ended.

    The file of the user may have the token of a server that another Dagster home has at the same port: it stays.

    Args:
        port: the port.
        home: the Dagster home of the server, which has its token.
    """
    ended = _read(_in_home(port, home))
    for file in _files(port, home):
        recorded = _read(file)
        if recorded is None or ended is None or recorded[1] == ended[1]:
            with suppress(OSError):
                file.unlink()


def with_token(remote: str) -> str:
    """Returns the address of a Spark Connect server, with the token if the server is one of ours.

    Args:
        remote: the address, `sc://HOST:PORT` with parameters. It is returned unchanged if it names another machine or
            says itself how to get access.
    """
    try:
        address = urlsplit(remote.split(";", maxsplit=1)[0])
        port = address.port or PORT
    except ValueError:
        return remote
    if address.scheme != "sc" or not is_this_machine(address.hostname or "") or _OWN_ACCESS.search(remote):
        return remote
    token = token_at(port)
    if token is None:
        return remote
    base, _, parameters = remote.partition(";")
    retained = "".join(f"{parameter};" for parameter in parameters.split(";") if parameter)
    return f"{base.rstrip('/')}/;{retained}authorization={quote(f'Bearer {token}', safe='')}"


def folder_of_user() -> Path:
    """Returns the folder in which the user's tokens and records of servers lie; it may not exist.

    Raises:
        RuntimeError: the user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "fk-pipeline"


def _files(port: int, home: Path | None = None) -> Iterator[Path]:
    """Yields the places of the token of a server: in the Dagster home, if there is one, and in a folder of the user."""
    home = home or dagster_home()
    if home.is_dir():
        yield _in_home(port, home)
    with suppress(RuntimeError):  # the user has no home
        yield folder_of_user() / _name(port)


def _in_home(port: int, home: Path) -> Path:
    return home / "servers" / _name(port)


def _name(port: int) -> str:
    return f"spark-{port}.token"


def write_private(file: Path, line: str) -> None:
    """Writes a line into a new file that only this user may read, which then takes the place of an older one."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            os.fchmod(out.fileno(), 0o600)
            out.write(f"{line}\n")
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def _read(file: Path) -> tuple[int, str] | None:
    """Returns the time of a file and the token in it; None as `read_private`, or if it has blanks."""
    line = read_private(file)
    return line if line is not None and _TOKEN.fullmatch(line[1]) else None


def read_private(file: Path) -> tuple[int, str] | None:
    """Returns the time of a file and the line in it; None if it is not whole, or others may read or write it."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as content:
            state = os.fstat(content.fileno())
            private = state.st_uid == os.geteuid() and not stat.S_IMODE(state.st_mode) & 0o077
            if not private or not stat.S_ISREG(state.st_mode):
                return None
            line = content.read(_MOST)
    except (OSError, UnicodeDecodeError):
        return None
    return (state.st_mtime_ns, line[:-1]) if line.endswith("\n") else None
