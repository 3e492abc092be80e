"""Every attack on the hub as it is, where nothing comes of it; and with its rule dropped, where it must.

The second half is what the first is worth: an attack that gets through nowhere proves nothing.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from .every_attack import ATTACKS
from .ground import Ground
from .weaknesses import REAL, WEAKNESSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .attack import Attack
    from .weaknesses import Weakness

pytestmark = [pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    """A hub with the rule dropped that the test names; one for all tests that name it."""
    weakness: Weakness = request.param
    async with AsyncExitStack() as stack:
        yield await Ground(tmp_path_factory.mktemp("ground"), weakness, stack).open()


@pytest.mark.parametrize("ground", [REAL], indirect=True, ids=str)
@pytest.mark.parametrize("attack", [pytest.param(each, id=each.name) for each in ATTACKS])
async def test_nothing_comes_of_it(ground: Ground, attack: Attack) -> None:
    assert await ground.attacked(attack.deed) == []


@pytest.mark.parametrize(
    ("ground", "attack"),
    [
        pytest.param(weakness, each, id=f"{weakness}-{each.name}")
        for weakness in WEAKNESSES
        for each in ATTACKS
        if weakness in each.falls_with
    ],
    indirect=["ground"],
)
async def test_it_gets_through_where_its_rule_is_dropped(ground: Ground, attack: Attack) -> None:
    harm = await ground.attacked(attack.deed, attack.harm)
    assert any(attack.harm in each for each in harm), harm
