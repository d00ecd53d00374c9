"""A Spark Connect server in the foreground, with the JARs and settings of our sessions.

`python -m fk_pipeline.servers.spark [--host 127.0.0.1] [--port 15002]`; FK_PIPELINES names the pipelines whose Spark
settings it is started with.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fk_pipeline.session import session_conf
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.load import merged, named_pipelines, pipeline_files

CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PORT = 15002


def main() -> None:
    """Replaces this process by the server."""
    import pyspark

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="where it listens")
    parser.add_argument("--port", default=PORT, type=int)
    options = parser.parse_args()
    conf = session_conf(merged([load_spec(file) for file in pipeline_files(named_pipelines())]))
    conf |= {
        "spark.connect.grpc.binding.address": options.host,
        "spark.connect.grpc.binding.port": str(options.port),
    }
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    arguments = ["--class", CONNECT_SERVER, "--name", conf.pop("spark.app.name"), "--master", conf.pop("spark.master")]
    for name, value in conf.items():
        arguments += ["--conf", f"{name}={value}"]
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.execv(submit, [submit, *arguments, "spark-internal"])  # noqa: S606 - the arguments come from the settings


if __name__ == "__main__":
    main()
