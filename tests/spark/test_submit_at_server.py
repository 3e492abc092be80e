"""With real servers: jobs on a cluster: spark-submit, the zip, executors in processes and directories of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from deltalake import DeltaTable

from tests.spark.shipped_job import shipped
from tests.support.spark_frames import frame

if TYPE_CHECKING:
    from tests.support.spark_server import HubServer

__all__ = ["shipped"]  # a fixture


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
