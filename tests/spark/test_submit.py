"""Jobs on a cluster: spark-submit, the zip, executors in processes and directories of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pyspark
import pytest

from backhaul_spark.nats.endpoint import local_file
from tests.spark.shipped_job import ROOT, shipped
from tests.support.pins import pins

__all__ = ["shipped"]  # a fixture


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
