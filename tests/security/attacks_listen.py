"""Attacks by what a stolen vehicle listens to, and by how much it asks of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attack import attack
from .facts import HONEST
from .weaknesses import LISTEN_TO_ANYTHING, NO_ISOLATION, NO_LIMITS

if TYPE_CHECKING:
    from .ground import Ground


@attack(LISTEN_TO_ANYTHING, harm="heard: Heard(subject='dn.VID-002.")
async def listening_to_everything_of_others(ground: Ground) -> None:
    token = ground.honest.token
    subjects = [
        *(">", "*", "*.>", "dn.>", "dn.*.*", "dlv.>", "clkr.>", "blobr.>", "clk.*", "blob.*"),
        *("up.>", "in.>", "fleet.>", "$KV.>", "$O.>", "$JS.>", "$JS.FC.>", "$JSC.>", "$SYS.>"),
        *("_R_.>", "_INBOX.>", f"_INBOX_{HONEST}.>", f"$JS.{HONEST}.API.>", "$JS.API.>"),
        *(f"dn.{HONEST}.>", f"dn.{HONEST}.{token}", f"clkr.{HONEST}.{token}"),
        *("w.>", f"w.{HONEST}.>", f"w.{HONEST}.{token}.>", f"w.{HONEST}.{token}.p.lamp.on.%"),
        *(f"$JS.{HONEST}.API.CONSUMER.RESET.OUT_bulk.{token}", f"$JS.FC.OUT_bulk.{token}.*"),
    ]
    for subject in subjects:
        for queue in ("", " workers 1"):
            leaf = await ground.leaf().open()
            await leaf.listen(subject + queue)
            await leaf.flush()


@attack(NO_ISOLATION, harm="learnt: dn.VID-002")
async def being_told_what_others_listen_to(ground: Ground) -> None:
    await (await ground.leaf().open()).flush()


@attack(NO_ISOLATION, harm="honest vehicle's link")
async def anothers_loop_detection_sent_back(ground: Ground) -> None:
    leaf = await ground.leaf().open()
    await leaf.flush()
    for subject in leaf.told:
        if subject.startswith("$LDS."):
            # One of them is the hub's own: the link on which that comes back is cut.
            other = await ground.leaf().open()
            await other.listen(subject)
            await other.flush()


@attack(NO_LIMITS, harm="took 1,000 subscriptions")
async def a_thousand_subscriptions(ground: Ground) -> list[str]:
    leaf = await ground.leaf().open()
    await leaf.listen(*(f"_INBOX_VID-001.{number}" for number in range(1000)))
    refused = not await leaf.flush() or any("maximum subscr" in each for each in leaf.errors)
    return [] if refused else ["took 1,000 subscriptions"]


@attack(NO_LIMITS, harm="took 3 MB")
async def a_message_of_3_mb(ground: Ground) -> list[str]:
    leaf = await ground.leaf().open()
    await leaf.publish("clk.VID-001", bytes(3_000_000))
    return ["took 3 MB"] if await leaf.flush() else []
