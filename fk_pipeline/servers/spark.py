"""A Spark Connect server in the foreground, with the JARs and settings of our sessions.

`python -m fk_pipeline.servers.spark [--host 127.0.0.1] [--port 15002]`; FK_PIPELINES names the pipelines whose Spark
settings it is started with. On this machine commands of the same user find it by themselves
(`environment.warm_spark`), with the token for which it asks (`environment.spark_token`).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fk_pipeline.console import say
from fk_pipeline.environment.spark_token import PORT, TOKEN, TOKEN_SETTING, dagster_home, is_this_machine, new_token
from fk_pipeline.environment.warm_spark import record_warm
from fk_pipeline.errors import FkPipelineError, UsageError
from fk_pipeline.servers.processes import answers
from fk_pipeline.session import comparable_conf, session_conf, with_class_archive
from fk_pipeline.spec import load_spec
from fk_pipeline.spec.project import merged, named_pipelines, pipeline_files

CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def main() -> None:
    """Replaces this process by the server."""
    try:
        _become_server()
    except FkPipelineError as error:
        say(f"{type(error).__name__}: {error}")
        sys.exit(error.exit_code)


def _become_server() -> None:
    import pyspark

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="where it listens")
    parser.add_argument("--port", default=PORT, type=int)
    options = parser.parse_args()
    settings = merged([load_spec(file) for file in pipeline_files(named_pipelines())])
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    conf = with_class_archive(session_conf(settings))
    conf |= {
        "spark.connect.grpc.binding.address": options.host,
        "spark.connect.grpc.binding.port": str(options.port),
    }
    given = conf.pop(TOKEN_SETTING, "") or os.environ.get(TOKEN, "")
    if is_this_machine(options.host):
        if answers(options.host, options.port):  # its token must stay
            raise UsageError(f"another program listens at port {options.port}", fix="end it, or choose another --port")
        given = new_token(options.port, given)
        record_warm(f"sc://{options.host}:{options.port}", dagster_home(), comparable_conf(settings))
    if given:
        os.environ[TOKEN] = given
    else:
        say(f"whoever reaches {options.host}:{options.port} can run code here: {TOKEN} is not set")
    submit = str(Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit")
    arguments = ["--class", CONNECT_SERVER, "--name", conf.pop("spark.app.name"), "--master", conf.pop("spark.master")]
    for name, value in conf.items():
        arguments += ["--conf", f"{name}={value}"]
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.execv(submit, [submit, *arguments, "spark-internal"])  # noqa: S606 - the arguments come from the settings


if __name__ == "__main__":
    main()
