"""Object stores: the environment's settings for S3, passed in the same way to Spark, fsspec and delta-rs.

Credentials stay in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN): all three read them
there. Each reads region and endpoint under another name, so this module passes them on.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fk_pipeline.errors import EnvironmentNotFit, StorageError, UsageError

S3 = ("s3a", "s3")
"""The schemes of S3. Spark's Hadoop client knows only the first one."""

CONDITION_FAILED = (404, 409, 412)
"""The HTTP statuses of a refused conditional put: there is another object than the one named, or none, or another put
is running.
"""

PATHS_AS_THEY_ARE = {"__globPaths__": "false"}
"""Options of a Spark reader whose paths are names, not patterns (`DataSource.GLOB_PATHS_KEY` in Spark 3 and 4)."""


def scheme_of(path: str) -> str:
    """Returns the scheme of a URI; empty for a plain path."""
    return path.split("://", maxsplit=1)[0] if "://" in path else ""


def refuse_remote(file: Path) -> None:
    """Refuses a file to write that is not on this machine: a path would make a folder of its scheme.

    Raises:
        UsageError: it is a URI.
    """
    scheme = file.parts[0] if file.parts else ""
    if len(scheme) > len("c:") and scheme.endswith(":"):
        raise UsageError(
            f"{file}: this command writes to the local disk only",
            fix="name a local file, and copy it; or read the tables where they are (docs/how-to/read-elsewhere.md)",
        )


def is_s3(path: str) -> bool:
    """Returns whether a path is a URI of S3."""
    return scheme_of(path) in S3


@dataclass(frozen=True)
class S3Place:
    """The place of S3: the endpoint of a server other than Amazon's, and a region; None if the environment has none."""

    endpoint: str | None
    region: str | None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> S3Place:
        """Returns the place from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and AWS_REGION or AWS_DEFAULT_REGION."""
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        return cls(endpoint or None, environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None)

    @property
    def is_plain(self) -> bool:
        """Whether connections to the server use no TLS."""
        return (self.endpoint or "").startswith("http://")

    def for_spark(self) -> dict[str, str]:
        """Returns the settings of a session, by Spark name."""
        conf = {}
        if self.endpoint:
            conf["spark.hadoop.fs.s3a.endpoint"] = self.endpoint
            conf["spark.hadoop.fs.s3a.path.style.access"] = "true"  # few servers besides Amazon's resolve bucket.host
            conf["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(not self.is_plain).lower()
        if self.region:
            conf["spark.hadoop.fs.s3a.endpoint.region"] = self.region
        return conf

    def for_client(self) -> dict[str, str]:
        """Returns the arguments of a client of botocore, on which s3fs is built."""
        named = {"endpoint_url": self.endpoint, "region_name": self.region}
        return {name: value for name, value in named.items() if value}

    def for_delta(self) -> dict[str, str]:
        """Returns the storage options of delta-rs."""
        named = {"aws_endpoint": self.endpoint, "aws_region": self.region}
        options = {name: value for name, value in named.items() if value}
        return options | {"allow_http": "true"} if self.is_plain else options


@dataclass(frozen=True)
class Refusal:
    """The refusal of a request by S3: the HTTP status, and the error code of S3."""

    status: int
    code: str


def ask_s3(operation: str, url: str, **what: Any) -> Any:
    """Sends a request about an object, with retries if they can help.

    Args:
        operation: a method of botocore's client.
        url: `s3a://bucket/key`.
        what: further arguments of the operation.

    Returns:
        The response of S3, or its `Refusal`.

    Raises:
        EnvironmentNotFit: the package s3fs, which installs botocore, is not installed.
        StorageError: S3 did not respond, or there are no credentials.
    """
    client = _client(S3Place.of())
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

    bucket, _, key = url.split("://", maxsplit=1)[1].partition("/")
    place = {"Bucket": bucket, "Prefix" if operation.startswith("list") else "Key": key}
    request: Callable[..., Any] = getattr(client, operation)
    try:
        return request(**place, **what)
    except ClientError as error:
        return Refusal(error.response["ResponseMetadata"]["HTTPStatusCode"], str(error.response["Error"]["Code"]))
    except (BotoCoreError, HTTPClientError) as error:
        raise StorageError(
            f"no answer from S3: {error}",
            where=url,
            why="nothing is known of what is there",
            fix="set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, and for another server than Amazon's "
            "AWS_ENDPOINT_URL; 'fk-pipeline doctor PIPELINE.yaml' tries them",
        ) from error


@cache
def _client(place: S3Place) -> Any:
    try:
        import botocore.session
        from botocore.config import Config
    except ImportError as error:
        raise EnvironmentNotFit(
            "paths in S3 need the package s3fs, which is not installed", fix="pip install 'fk-pipeline[s3]'"
        ) from error
    config = Config(retries={"mode": "standard", "max_attempts": 4}, connect_timeout=5, read_timeout=20)
    return botocore.session.get_session().create_client("s3", config=config, **place.for_client())


def delta_options(path: str) -> dict[str, str] | None:
    """Returns the storage options with which delta-rs opens a table; None if it needs none."""
    return S3Place.of().for_delta() if is_s3(path) else None


def has_exclusive_writes(path: str) -> bool:
    """Returns whether `write_new` knows the place of a path: a local disk, or S3."""
    return not scheme_of(path) or is_s3(path)


def has_files(path: str) -> bool:
    """Returns whether there is a folder, or in S3 an object below a prefix, at a path that `has_exclusive_writes`."""
    if not is_s3(path):
        return Path(path).exists()
    answer = ask_s3("list_objects_v2", f"{path}/", MaxKeys=1)
    return isinstance(answer, Refusal) or bool(answer["KeyCount"])


def write_named(path: str, data: bytes) -> None:
    """Writes a file with a random name, which no other process gives to one of its files (`write_new`).

    Raises:
        OSError: there is a file of that name with another content, or as `write_new`.
    """
    if not write_new(path, data):
        raise FileExistsError(f"{path} is there already")


def write_new(path: str, data: bytes) -> bool:
    """Writes a file that must not exist yet, as a whole and in one step.

    Args:
        path: the file, in a place that `has_exclusive_writes`; its folder exists.
        data: its content, which no other process writes.

    Returns:
        Whether it was written; False if another process has written the file.

    Raises:
        OSError: the disk is full, the folder cannot be written, or it is not known whether S3 has the file.
        StorageError: S3 did not respond, or refused the write.
    """
    return _put_new(path, data) if is_s3(path) else _link_new(Path(path), data)


def _link_new(file: Path, data: bytes) -> bool:
    written = file.with_name(f".{uuid.uuid4()}.tmp")
    try:
        written.write_bytes(data)
        os.link(written, file)  # fails if the file exists, in one step
    except FileExistsError:
        return False
    finally:
        written.unlink(missing_ok=True)
    return True


def _put_new(url: str, data: bytes) -> bool:
    answer = ask_s3("put_object", url, Body=data, IfNoneMatch="*")
    if not isinstance(answer, Refusal):
        return True
    if answer.status not in CONDITION_FAILED or answer.code == "NoSuchBucket":
        raise StorageError(
            f"S3 refused to write: {answer.code}",
            where=url,
            why="the commit was not made",
            fix="give these credentials the right to write there",
        )
    with as_os_errors(), opened(url) as stored:  # a put that is repeated because its reply got lost fails on itself
        return bool(stored.read() == data)


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raises the errors of S3 that s3fs passes on, of connections that end for example, as OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("botocore.", "aiobotocore.", "aiohttp.")):
            raise
        raise OSError(f"S3 did not respond: {error}") from error


def filesystem(path: str) -> tuple[Any, str]:
    """Returns the file system of fsspec for a path or URI, and the path in it.

    A path is always one path, although fsspec itself reads `::` in it as a chain of file systems. The file system
    caches no listing: other processes may write at the same time.
    """
    import fsspec

    if not scheme_of(path):
        return fsspec.filesystem("file"), str(Path(path).absolute())
    start, colons, rest = path.partition("::")
    fs, root = fsspec.core.url_to_fs(start, **_options(path))
    return fs, f"{root}{colons}{rest}"


def opened(path: str, mode: str = "rb", **options: Any) -> Any:
    """Opens a file of `filesystem`, as fsspec does; creates the local folder of a file that is to be written."""
    fs, root = filesystem(path)
    if "w" in mode and not scheme_of(path):
        fs.makedirs(str(Path(root).parent), exist_ok=True)
    return fs.open(root, mode, **options)


def _options(path: str) -> dict[str, Any]:
    if scheme_of(path) in ("", "file"):
        return {}
    options: dict[str, Any] = {"use_listings_cache": False}
    return options | {"client_kwargs": S3Place.of().for_client()} if is_s3(path) else options
