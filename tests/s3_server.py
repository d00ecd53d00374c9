"""A local server with the S3 API for tests: moto in memory, with one writing request at a time.

python s3_server.py    prints its port, and serves until it is stopped
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Answer = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def one_at_a_time(app: Answer) -> Answer:
    """Returns the application with writing requests one at a time.

    moto checks the condition of a put and then writes; S3 does both in one step.
    """
    writing = threading.Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return app(environ, start)
        with writing:
            return list(app(environ, start))

    return answer


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, one_at_a_time(DomainDispatcherApplication(create_backend_app)), threaded=True)
    print(server.port, flush=True)  # noqa: T201 - the fixture reads it
    server.serve_forever()


if __name__ == "__main__":
    main()
