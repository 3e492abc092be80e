"""The trucks that all questions are about."""

from __future__ import annotations

import pytest

from tests.support.truck_world import TruckWorld


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> TruckWorld:
    return TruckWorld(tmp_path_factory.mktemp("trucks"))
