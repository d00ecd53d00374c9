"""What the environment says of S3 reaches Spark, fsspec and delta-rs; the JARs for it are an extra."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark
import pytest

from fk_pipeline import session
from fk_pipeline.environment import s3_jars
from fk_pipeline.environment.jars import Jar, main
from fk_pipeline.environment.storage import S3Place, delta_options, filesystem, is_s3, scheme_of
from fk_pipeline.errors import EnvironmentNotFit
from fk_pipeline.session import require_s3, session_conf
from fk_pipeline.spec import Settings

LOCAL = S3Place("http://127.0.0.1:5000", "eu-central-1")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "FK_SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(session, "bring", list)
    monkeypatch.setenv("FK_JARS_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, S3Place(None, None)),
        ({"AWS_ENDPOINT_URL": ""}, S3Place(None, None)),
        ({"AWS_ENDPOINT_URL": LOCAL.endpoint, "AWS_REGION": LOCAL.region}, LOCAL),
        ({"AWS_ENDPOINT_URL": "https://all", "AWS_ENDPOINT_URL_S3": "https://s3"}, S3Place("https://s3", None)),
        ({"AWS_DEFAULT_REGION": "b"}, S3Place(None, "b")),
        ({"AWS_DEFAULT_REGION": "b", "AWS_REGION": "a"}, S3Place(None, "a")),
    ],
)
def test_endpoint_and_region_come_from_the_environment(environment, place):
    assert S3Place.of(environment) == place


def test_another_server_is_told_to_all_three():
    assert LOCAL.for_spark() == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:5000",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
    }
    assert LOCAL.for_client() == {"endpoint_url": "http://127.0.0.1:5000", "region_name": "eu-central-1"}
    assert LOCAL.for_delta() == {
        "aws_endpoint": "http://127.0.0.1:5000", "aws_region": "eu-central-1", "allow_http": "true",
    }  # fmt: skip


def test_with_tls_nothing_is_allowed_without():
    place = S3Place("https://s3.example.com", None)
    assert place.for_spark()["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "true"
    assert "allow_http" not in place.for_delta()


def test_nothing_is_told_where_the_environment_says_nothing():
    assert (S3Place.of({}).for_spark(), S3Place.of({}).for_client(), S3Place.of({}).for_delta()) == ({}, {}, {})
    assert delta_options("/data/t") is None
    assert delta_options("s3a://bucket/t") == {}


def test_the_settings_of_the_pipeline_file_win_over_the_environment():
    settings = Settings(spark={"spark.hadoop.fs.s3a.endpoint": "https://mine"})
    conf = session_conf(settings, {"AWS_ENDPOINT_URL": "http://127.0.0.1:5000"})
    assert conf["spark.hadoop.fs.s3a.endpoint"] == "https://mine"
    assert conf["spark.hadoop.fs.s3a.path.style.access"] == "true"


def test_schemes():
    assert [scheme_of(path) for path in ("/data", "s3a://b/k", "file:///data", "in/*.csv")] == ["", "s3a", "file", ""]
    assert is_s3("s3a://b")
    assert is_s3("s3://b")
    assert not is_s3("gs://b")


def test_a_path_on_a_disk_is_asked_for_nothing(tmp_path):
    fs, root = filesystem(str(tmp_path))
    assert (fs.protocol[0], root) == ("file", str(tmp_path))


@pytest.fixture
def small_jars(monkeypatch, tmp_path):
    """Two small JARs stand for those for S3, as a Maven repository has them."""
    content = b"a JAR"
    digest = hashlib.sha256(content).hexdigest()
    small = (Jar("one", "1", digest, "org.a"), Jar("two", "2", digest, "org.b"))
    for jar in small:
        path = tmp_path / "repository" / jar.repository_path
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    monkeypatch.setattr(s3_jars, "S3_JARS", small)
    monkeypatch.setattr("fk_pipeline.environment.jars.DELTA_JARS", ())
    return tmp_path / "repository"


def test_the_jars_for_s3_are_brought_when_asked_for_and_then_every_session_has_them(small_jars, tmp_path, capsys):
    environment = {"SPARK_MASTER": "local[2]"}
    assert main(["--base-url", small_jars.as_uri()]) == 0
    assert session_conf(environment=environment)["spark.driver.extraClassPath"] == ""
    assert main(["--s3", "--base-url", small_jars.as_uri()]) == 0
    assert capsys.readouterr().out.endswith(f"Delta and S3 JARs are in {tmp_path}\n")
    wanted = [str(tmp_path / name) for name in ("one-1.jar", "two-2.jar")]
    assert session_conf(environment=environment)["spark.driver.extraClassPath"].split(":") == wanted
    assert session_conf(environment={"SPARK_MASTER": "spark://host:7077"})["spark.jars"].split(",") == wanted
    assert main(["--s3", "--verify"]) == 0
    (tmp_path / "one-1.jar").write_bytes(b"another")
    assert main(["--s3", "--verify"]) == 3
    assert session_conf(environment=environment)["spark.driver.extraClassPath"] == ""


def test_a_path_in_s3_without_the_jars_is_told_before_spark_starts(small_jars, tmp_path, monkeypatch):
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(EnvironmentNotFit, match="the JARs with which Spark reaches S3 are not there") as caught:
        require_s3(["/data", "s3a://bucket/w"], Settings(), {})
    assert caught.value.fix == "run python -m fk_pipeline.environment.jars --s3"
    require_s3(["/data", "gs://bucket/w"], Settings(), {})
    require_s3(["s3a://bucket/w"], Settings(spark={"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}), {})
    require_s3(["s3a://bucket/w"], Settings(), {"FK_SPARK_REMOTE": "sc://host"})
    assert main(["--s3", "--base-url", small_jars.as_uri()]) == 0
    require_s3(["s3a://bucket/w"], Settings(), {})


def test_hadoop_aws_has_the_version_of_the_hadoop_client_that_pyspark_brings():
    folder = Path(pyspark.__file__).parent / "jars"
    assert (folder / f"hadoop-client-api-{s3_jars.HADOOP}.jar").is_file()
