"""Whether the engine of a Spark session is still alive: the Java process of this process, or a Spark Connect server.

PySpark keeps a dead session for ever, and every later call fails with "Connection refused". So this module makes
PySpark forget it: the next session is a new one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import warnings
from contextlib import suppress
from typing import Any

from fk_pipeline.environment.spark_token import is_this_machine

_END_SECONDS = 5.0
"""Seconds that a Java process has to end after it closed a connection."""

_LOST = (
    "SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED", "StatusCode.UNAVAILABLE", "StatusCode.UNAUTHENTICATED",
    "RETRIES_EXCEEDED",
)  # fmt: skip
"""Texts in the errors of Spark Connect's client if the server is gone, or was restarted with another token."""

_STOPPED = ("stopped SparkContext", "SparkContext was shut down", "SparkContext has been shutdown")
"""Texts in the errors of a Spark that has stopped itself, for example after it ran out of memory."""


def is_gone(session: Any) -> bool:
    """Returns whether a session can compute nothing any more, as far as that is known without a call to it.

    A server of this machine is gone if nothing listens at its port: its client would try again for minutes.
    """
    context = getattr(session, "_sc", None)
    if context is None:
        return bool(session.is_stopped) or _refuses(session)
    process = _process(context)
    return getattr(context, "_jsc", None) is None or (process is not None and process.poll() is not None)


def is_lost(error: BaseException | None) -> bool:
    """Returns whether an error means that Spark could not be reached."""
    while error is not None:
        if isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JNetworkError", "RetriesExceeded"):
            return True
        text = str(error)
        if _module(error).startswith(("pyspark.", "py4j.", "grpc.")) and any(sign in text for sign in _LOST):
            return True
        error = error.__cause__ or error.__context__
    return False


def has_ended(session: Any, error: BaseException) -> bool:
    """Returns whether a session is gone after it raised an error; if so, makes PySpark forget it."""
    context = getattr(session, "_sc", None)
    process = _process(context)
    breaks_off = is_lost(error) or (_module(error).startswith("py4j.") and not hasattr(error, "java_exception"))
    if process is not None and breaks_off and not is_gone(session):  # the process may be about to end
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    gave_up = any(sign in str(error) for sign in _STOPPED)
    ended = is_gone(session) or gave_up or (process is None and is_lost(error))
    if ended:
        forget_session(session)
    return ended


def forget_session(session: Any) -> None:
    """Makes PySpark forget a session that is gone, with its context and its processes."""
    context = getattr(session, "_sc", None)
    if context is None:
        with suppress(Exception):
            session.client.set_retry_policies([])
            session.release_session_on_close = False  # no server is left that could release it
        with suppress(Exception):
            session.stop()
        return
    _forget_context(context)


def is_classic() -> bool:
    """Returns whether this process has a Spark of its own, also if no session of it is active in this thread."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None  # noqa: SLF001


def leave_connect() -> None:
    """Lets the next session of PySpark be one of this process, if that of a Spark Connect server has ended."""
    # While another thread imports the module, it has no class yet, and there is no session.
    session: Any = getattr(sys.modules.get("pyspark.sql.connect.session"), "SparkSession", None)
    if session is None or session._default_session is None:  # noqa: SLF001
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


def forget_dead() -> None:
    """Makes PySpark forget the session of this process, if there is one and its Java process has ended."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway  # noqa: SLF001
    process = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:
        _forget_context(context)


def _forget_context(context: Any) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    gateway = SparkContext._gateway  # noqa: SLF001
    process = _process(context) or getattr(gateway, "proc", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that it could not be ended properly
        for end in (getattr(context, "stop", None), getattr(gateway, "shutdown", None)):
            with suppress(Exception):
                if end is not None:
                    end()
    server = getattr(context, "_accumulatorServer", None)
    with suppress(Exception):
        if server is not None:
            server.shutdown()
    if process is not None and process.poll() is None:  # it is alive, but computes nothing any more
        process.kill()
        process.wait(_END_SECONDS)
    for owner, names in (
        (SparkContext, ("_active_spark_context", "_gateway", "_jvm")),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
        (SQLContext, ("_instantiatedContext",)),
    ):
        for name in names:
            setattr(owner, name, None)


def _refuses(session: Any) -> bool:
    """Returns whether nothing listens where the server of a session was, if that is on this machine."""
    endpoint = getattr(getattr(getattr(session, "client", None), "_builder", None), "endpoint", None)
    host, _, port = str(endpoint).rpartition(":")
    if not is_this_machine(host) or not port.isdigit():
        return False
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _process(context: Any) -> subprocess.Popen[bytes] | None:
    """Returns the Java process of a session; None if this process has not started it."""
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    return process if isinstance(process, subprocess.Popen) else None


def _module(error: BaseException) -> str:
    return type(error).__module__
