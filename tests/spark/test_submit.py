"""Jobs on a cluster: spark-submit, the zip, executors in processes and directories of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from deltalake import DeltaTable

from backhaul_spark.nats.endpoint import local_file
from tests.support.pins import pins
from tests.support.spark_frames import frame

if TYPE_CHECKING:
    from tests.support.spark_server import HubServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make spark-zip` fills."""
    out = tmp_path_factory.mktemp("spark-out")
    subprocess.run([sys.executable, ROOT / "tools" / "spark-zip", out], check=True, timeout=240)
    return out


def test_the_same_sources_give_the_same_zip(shipped: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "tools" / "spark-zip", tmp_path], check=True, timeout=240
    )
    name = "backhaul-spark.zip"
    assert (tmp_path / name).read_bytes() == (shipped / name).read_bytes()
    packages = {entry.split("/")[0] for entry in zipfile.ZipFile(shipped / name).namelist()}
    assert packages == {"backhaul_spark", "backhaul_codec", "backhaul_runtime"}


@pytest.mark.slow
def test_executors_need_no_package_that_the_spark_extra_does_not_bring(shipped: Path) -> None:
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); "
        "import backhaul_spark.source.jetstream_source, backhaul_spark.tables.part_writer, backhaul_spark.rollup.tasks, "
        "backhaul_spark.nats.connection, backhaul_spark.rules.actor, backhaul_spark.detect.findings; "
        "print(json.dumps([backhaul_spark.__file__, "
        "sorted({n.split('.')[0] for n in set(sys.modules) - before})]))"
    )
    archive = str(shipped / "backhaul-spark.zip")
    command = [sys.executable, "-c", code, archive]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=240, cwd=shipped)
    file, modules = json.loads(ran.stdout)
    assert file.startswith(archive)
    owners = packages_distributions()
    needed = {owner.lower().replace("_", "-") for name in modules for owner in owners.get(name, ())}
    assert "numpy" in needed
    assert needed - pins("spark.txt") - {"backhaul"} == set()


def test_an_executor_takes_the_file_that_was_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "driver" / "login.toml"
    assert local_file(str(asked)) == asked  # of which the error then speaks
    (tmp_path / "login.toml").write_text("shipped")
    monkeypatch.setattr(pyspark.SparkFiles, "_root_directory", str(tmp_path))
    assert local_file(str(asked)) == tmp_path / "login.toml"
    asked.parent.mkdir()
    asked.write_text("its own")
    assert local_file(str(asked)) == asked


@pytest.mark.spark
@pytest.mark.nats
def test_ingest_on_a_cluster_writes_every_point(
    hub_server: HubServer, shipped: Path, tmp_path: Path
) -> None:
    """The table root is relative, and the login's file is one that only the driver has at its path."""
    hub_server.put([frame(seq) for seq in range(1, 21)])
    here = tmp_path / "driver"
    here.mkdir()
    (here / "login.toml").write_text(hub_server.credentials.read_text())
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    command: list[str | Path] = [
        Path(pyspark.__file__).parent / "bin" / "spark-submit",
        *("--master", "local-cluster[1,1,1024]"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=3"),
        *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"),
        *("--py-files", shipped / "backhaul-spark.zip", "--files", here / "login.toml"),
        shipped / "backhaul-spark.py",
        *("ingest", "--once", "--json", "--servers", hub_server.url),
        *("--credentials", "login.toml", "--table-root", "tables"),
    ]
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        command, check=False, cwd=here, env=environment, capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert json.loads(ran.stdout.splitlines()[-1])["points"] == 40
    assert DeltaTable(here / "tables" / "points").count() == 40
