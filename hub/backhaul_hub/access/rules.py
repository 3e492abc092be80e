"""The hub's accounts: the traffic between them, and the rights of a vehicle in its own. Pure.

    SYS      the servers themselves: events, account updates
    HUB      JetStream and services. No vehicle is ever in it
    UP       what vehicles have sent, in JetStream, and nothing else: who is behind a source has the
             server publish empty messages in its account, on any subject. The API has no name there
             that could be guessed
    FLEET    vehicles' leafs, and no JetStream: reply subjects are never permission-checked, so a device
             in an account with JetStream could reach its API through one
    JOBS     Spark: reads UP through the account boundary, and so with no reply subject of its own
             choosing: creates nothing, deletes nothing, writes nothing
    TWIN     the twin job: reads UP as JOBS does, and DOWN, and publishes alerts and commands, as calls of
             a service: the server, and not the job, says where the acknowledgement goes
    HISTORY  the server of history: reads UP as JOBS does, and answers the control plane's questions, which come
             as calls of a service: it hears no other subject, and the server says where its answer goes
    ENROL    leafs of devices that are not enrolled yet
    PEOPLE   operators' and dashboards' users

Every account is built anew from the keys, the devices' lanes and the revocations in hub.db.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from backhaul_codec.kinds import SHARED_LANES, Lane
from backhaul_codec.protocol.enrolment import REQUEST_BYTES_MAX, answer_prefix, request_subject
from backhaul_codec.protocol.history import SUBJECT as HISTORY_QUESTIONS
from backhaul_codec.protocol.push import BESIDE, PUSHES, beside_subject, push_subject
from backhaul_codec.subjects import DICTIONARY_STREAM, IMPORT_STREAM
from backhaul_hub import shards
from backhaul_hub.access.account_names import ACCOUNTS, AccountName
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.lane_names import (
    DOWN,
    RESETS,
    deliver_subject,
    down_deliver_subject,
    down_durable,
    out_stream,
)
from backhaul_hub.nats.jwt import Account, Export, Import, Rights, Scope, account_jwt
from backhaul_runtime.jetstream import API

STORING: tuple[AccountName, ...] = ("HUB", "UP")
"""Those with JetStream."""

_NO_GENERATIONS: Mapping[AccountName, int] = {}

# As what accounts JOBS and TWIN know the API: $JS.API is each account's own, and they have none. DOWN
# stands in another account than UP, and who asks by one name is answered by one.
JOBS_API, DOWN_API, IMPORT_API = "jobsapi", "downapi", "importapi"
DICTIONARY_API = "dictapi"
# What a reader of streams asks that has one answer. One message, as a stream's leader has it: of a
# cluster any server answers a direct get, and may be behind.
_READ_ONE = ("STREAM.INFO.*", "STREAM.LIST", "STREAM.MSG.GET.*")
_READ_MANY = "DIRECT.GET.*"
_READ_ONE_OF_DOWN = (f"STREAM.INFO.{DOWN}", f"STREAM.MSG.GET.{DOWN}")
_READ_MANY_OF_DOWN = f"DIRECT.GET.{DOWN}"
# What operators have imported stands beside DOWN: no vehicle reaches that account at all.
_READ_ONE_OF_IMPORT = (f"STREAM.INFO.{IMPORT_STREAM}", f"STREAM.MSG.GET.{IMPORT_STREAM}")
_READ_MANY_OF_IMPORT = f"DIRECT.GET.{IMPORT_STREAM}"
# Likewise what messages of vehicles are packed against.
_READ_ONE_OF_DICT = (f"STREAM.INFO.{DICTIONARY_STREAM}", f"STREAM.MSG.GET.{DICTIONARY_STREAM}")
_READ_MANY_OF_DICT = f"DIRECT.GET.{DICTIONARY_STREAM}"
# The hub's streams take those of its own env alone.
_FROM_TWIN = ("fleet.*.veh.*.evt.alert.>", "fleet.*.veh.*.cmd.>")
CLOCK_QUESTIONS, CLOCK_ANSWERS = "clk.*", "clkr.*.*"
BLOB_QUESTIONS, BLOB_ANSWERS = "blob.*", "blobr.*.*"
_TO_LEAFS = ("dn.>", CLOCK_ANSWERS, BLOB_ANSWERS, BESIDE)
# The subject says who asks, which the permissions of FLEET make true.
_FROM_LEAFS = (CLOCK_QUESTIONS, BLOB_QUESTIONS)
_DELIVERIES = "dlv.*.*"
# The server imports the API into an account by its known names unless something of SYS is there (ADR 25).
_ALL_OF_API, _NOTHING = f"{API}.>", "void.>"
_FROM_UP = f"{shards.DELIVERIES}.>"
# With it a stream of account UP sources another. By a name of its own: configurations say it, and jobs may
# read those.
_SOURCE = ("CONSUMER.CREATE.*", "CONSUMER.CREATE.*.>")
# Acknowledgements of snapshots, and what is put back: as a stream, since a service adds a header.
_SNAPSHOTS = "$JS.SNAPSHOT.>"
# Of what is delivered from there, as the twin's events: of no stream's name, since shards are added.
_UP_FLOW_CONTROL = ("$JS.FC.*.*.*", "$JS.FC.*.*.*.*.*")
_ENROL = request_subject("*")
# Questions as messages, not as calls of a service: the hub sees where an answer is to go.
_FROM_PEOPLE = ("ask.>",)
_TO_PEOPLE = ("up.>", "inbox.>")

# What the server puts in a template's place for each vehicle.
_DEVICE, _TOKEN, _LANE = "{{name()}}", "{{tag(tok)}}", "{{tag(lane)}}"
# Five for each lane, and a device has 2 and up to 64 of nodes, and 64 that are on their way out.
SUBS_MAX = 700
# Leafs take messages up to 2 MiB; what they send on has headers of the servers' own besides.
PAYLOAD_BYTES_MAX = (2 << 20) + (64 << 10)


def account_jwts(
    keys: HubKeys,
    lanes: Iterable[Lane],
    revoked: Mapping[AccountName, Mapping[str, int]],
    *,
    now_s: int,
    generations: Mapping[AccountName, int] = _NO_GENERATIONS,
) -> dict[AccountName, str]:
    """Return the JWTs of all accounts, those first from which others import.

    Args:
        keys: the hub's.
        lanes: those of nodes, of any device.
        revoked: for each account users' keys, and up to when what was signed for them is void.
        now_s: since the Unix epoch.
        generations: of each account that was ever changed.
    """
    every = [*SHARED_LANES, *sorted(set(lanes))]
    public: dict[AccountName, str] = {name: keys.account(name).public for name in ACCOUNTS}
    vehicles = Scope(keys.vehicles.public, "vehicles", vehicle_rights())
    accounts: dict[AccountName, Account] = {
        "SYS": Account("SYS", [Export("service", subject) for subject in (_ALL_OF_API, _NOTHING)]),
        "FLEET": Account("FLEET", _fleet_exports(every), _fleet_imports(public), [vehicles]),
        "PEOPLE": Account(
            "PEOPLE",
            [Export("stream", subject) for subject in _FROM_PEOPLE],
            [Import("stream", subject, public["HUB"]) for subject in _TO_PEOPLE],
        ),
        "HISTORY": Account(
            "HISTORY",
            [Export("service", HISTORY_QUESTIONS)],
            _jobs_imports(public, keys.up_api),
            leafs=False,
        ),
        # After those that they import from.
        "UP": Account(
            "UP", _up_exports(keys.up_api), _up_imports(public, keys, every), jetstream=True
        ),
        "HUB": Account("HUB", _hub_exports(), _hub_imports(public, keys.up_api), jetstream=True),
        "JOBS": Account("JOBS", imports=_jobs_imports(public, keys.up_api), leafs=False),
        "TWIN": Account("TWIN", imports=_twin_imports(public, keys.up_api), leafs=False),
        "ENROL": Account("ENROL", imports=[Import("service", _ENROL, public["HUB"])]),
    }
    return {
        name: account_jwt(
            account,
            public[name],
            keys.operator_signing,
            revoked.get(name, {}),
            now_s=now_s,
            generation=generations.get(name, 0),
        )
        for name, account in accounts.items()
    }


def vehicle_tags(token: str, lanes: Iterable[Lane]) -> list[tuple[str, str]]:
    """Return the tags of a vehicle's JWT: its token, and the lanes of its nodes."""
    return [("tok", token), *(("lane", lane) for lane in lanes)]


def vehicle_rights() -> Rights:
    """Return the rights of every vehicle, as a template."""
    outward = (*SHARED_LANES, _LANE)
    streams = [out_stream(lane) for lane in outward]
    inward = ("", _LANE)
    durables = [f"{DOWN}.{down_durable(_DEVICE, _TOKEN, lane)}" for lane in inward]
    return Rights(
        publish=(
            *(deliver_subject(_DEVICE, _TOKEN, lane) for lane in outward),
            # Answers to what the hub asked, through the account boundary.
            "_R_.*.*",
            *(f"hubapi.CONSUMER.RESET.{durable}" for durable in durables),
            # With ">" where "*" would do: where an account is updated a connected leaf is told anew
            # of what FLEET imports, and 2.15.1 then takes "*.*" and "<durable>.*" for two subjects
            # that have nothing in common: no acknowledgement of flow control would come any more.
            *(f"$JS.FC.{durable}.>" for durable in durables),
            *(f"$JS.FC.*.*.{durable}.>" for durable in durables),
            f"clk.{_DEVICE}",
            f"blob.{_DEVICE}",
            push_subject(_DEVICE, _TOKEN, ">"),
        ),
        subscribe=(
            *(f"$JS.{_DEVICE}.API.CONSUMER.RESET.{stream}.{_TOKEN}" for stream in streams),
            *(f"$JS.FC.{stream}.{_TOKEN}.*" for stream in streams),
            *(f"$JS.FC.*.*.{stream}.{_TOKEN}.*" for stream in streams),
            *(down_deliver_subject(_DEVICE, _TOKEN, lane) for lane in inward),
            clock_answer_subject(_DEVICE, _TOKEN),
            blob_answer_subject(_DEVICE, _TOKEN),
            beside_subject(_DEVICE, _TOKEN, ">"),
            *(f"$JSC.R.*.*.{durable}.*" for durable in durables),
            f"_INBOX_{_DEVICE}.>",
        ),
        subs_max=SUBS_MAX,
        payload_bytes_max=PAYLOAD_BYTES_MAX,
        connection_types=("LEAFNODE",),
    )


def asking_rights(token_id: str) -> Rights:
    """Return the rights of a vehicle that is not enrolled yet: ask with its own token, and be answered."""
    return Rights(
        publish=(request_subject(token_id),),
        subscribe=(f"{answer_prefix(token_id)}.>",),
        subs_max=16,
        payload_bytes_max=REQUEST_BYTES_MAX,
        connection_types=("LEAFNODE",),
    )


def source_api_subjects(source_api: str) -> list[str]:
    """Return by which subjects of account UP its streams source one another, and do nothing else."""
    return [f"{source_api}.{verb}" for verb in _SOURCE]


def clock_answer_subject(device: str, token: str) -> str:
    """Return where the hub tells a device the time, and no other device can listen."""
    return f"clkr.{device}.{token}"


def blob_answer_subject(device: str, token: str) -> str:
    """Return where the hub answers a device about artifacts, and no other device can listen."""
    return f"blobr.{device}.{token}"


def _hub_exports() -> list[Export]:
    # No leaf reaches the API itself: a leaf's reply can have that told any subject (ADR 17).
    services = [RESETS, *_flow_control(DOWN), _ENROL, *_FROM_TWIN]
    return [
        *(Export("service", subject) for subject in services),
        # For TWIN and JOBS, where nobody comes as a leaf.
        *(
            Export("service", f"{API}.{verb}")
            for verb in _READ_ONE_OF_DOWN + _READ_ONE_OF_IMPORT + _READ_ONE_OF_DICT
        ),
        *(
            Export("service", f"{API}.{verb}", many_answers=True)
            for verb in (_READ_MANY_OF_DOWN, _READ_MANY_OF_IMPORT, _READ_MANY_OF_DICT)
        ),
        *(Export("stream", subject) for subject in (*_TO_LEAFS, *_TO_PEOPLE, _SNAPSHOTS)),
    ]


def _up_exports(secret: str) -> list[Export]:
    services = [f"{secret}.>", shards.JOINED, *_UP_FLOW_CONTROL]
    return [
        *(Export("service", subject) for subject in services),
        # The streams answer it themselves, not the API.
        Export("service", f"{API}.{_READ_MANY}", many_answers=True),
        Export("stream", _FROM_UP),
    ]


def _up_imports(
    public: Mapping[AccountName, str], keys: HubKeys, lanes: Iterable[Lane]
) -> list[Import]:
    return [
        Import("service", _NOTHING, public["SYS"], _ALL_OF_API),
        Import("service", _ALL_OF_API, public["SYS"], f"{keys.up_api}.>", share=True),
        *(
            Import("service", f"{API}.{verb}", public["SYS"], here, share=True)
            for verb, here in zip(_SOURCE, source_api_subjects(keys.source_api), strict=True)
        ),
        *(Import("service", subject, public["FLEET"]) for subject in _fleet_services(lanes)),
        *(Import("stream", subject, public["FLEET"]) for subject in (_DELIVERIES, PUSHES)),
        Import("stream", _SNAPSHOTS, public["HUB"]),
    ]


def _api_of_up(
    public: Mapping[AccountName, str], secret: str, verbs: Iterable[str], here: str
) -> list[Import]:
    """Return the imports of a part of UP's API, and of direct gets, under a prefix."""
    return [
        *(
            Import("service", f"{secret}.{verb}", public["UP"], f"{here}.{verb}", share=True)
            for verb in verbs
        ),
        Import("service", f"{API}.{_READ_MANY}", public["UP"], f"{here}.{_READ_MANY}"),
    ]


def _jobs_imports(public: Mapping[AccountName, str], secret: str) -> list[Import]:
    return [
        *_api_of_up(public, secret, _READ_ONE, JOBS_API),
        *_api_of_hub(public, _READ_ONE_OF_IMPORT, _READ_MANY_OF_IMPORT, IMPORT_API),
        *_api_of_hub(public, _READ_ONE_OF_DICT, _READ_MANY_OF_DICT, DICTIONARY_API),
    ]


def _api_of_hub(
    public: Mapping[AccountName, str], one: Iterable[str], many: str, here: str
) -> list[Import]:
    """Return the imports of reading one stream of account HUB, under a prefix."""
    hub = public["HUB"]
    return [
        *(Import("service", f"{API}.{verb}", hub, f"{here}.{verb}", share=True) for verb in one),
        Import("service", f"{API}.{many}", hub, f"{here}.{many}"),
    ]


def _twin_imports(public: Mapping[AccountName, str], secret: str) -> list[Import]:
    hub = public["HUB"]
    return [
        *_jobs_imports(public, secret),
        *_api_of_hub(public, _READ_ONE_OF_DOWN, _READ_MANY_OF_DOWN, DOWN_API),
        *(Import("service", subject, hub) for subject in _FROM_TWIN),
    ]


def _fleet_exports(lanes: Iterable[Lane]) -> list[Export]:
    """Return the exports of leafs to the hub, for all lanes that any of them has.

    Lane by lane, since a wildcard would stand for a whole stream's name: `$JS.FC.*.*.*` from here to
    HUB beside the flow control of DOWN from HUB to here is a cycle, which the server refuses.
    """
    return [
        *(Export("service", subject) for subject in _fleet_services(lanes)),
        *(Export("stream", subject) for subject in (_DELIVERIES, PUSHES, *_FROM_LEAFS)),
    ]


def _fleet_imports(public: Mapping[AccountName, str]) -> list[Import]:
    return [
        *(Import("service", subject, public["HUB"]) for subject in (RESETS, *_flow_control(DOWN))),
        *(Import("stream", subject, public["HUB"]) for subject in _TO_LEAFS),
    ]


def _hub_imports(public: Mapping[AccountName, str], secret: str) -> list[Import]:
    return [
        *_api_of_up(public, secret, ("STREAM.>", "CONSUMER.>"), shards.API),
        Import("service", shards.JOINED, public["UP"], f"{shards.API}.{shards.JOINED}"),
        *(Import("service", subject, public["UP"]) for subject in _UP_FLOW_CONTROL),
        Import("stream", _FROM_UP, public["UP"]),
        *(Import("stream", subject, public["FLEET"]) for subject in _FROM_LEAFS),
        *(Import("stream", subject, public["PEOPLE"]) for subject in _FROM_PEOPLE),
        Import("service", HISTORY_QUESTIONS, public["HISTORY"]),
    ]


def _fleet_services(lanes: Iterable[Lane]) -> list[str]:
    streams = [out_stream(lane) for lane in lanes]
    resets = [f"$JS.*.API.CONSUMER.RESET.{stream}.*" for stream in streams]
    return resets + [subject for stream in streams for subject in _flow_control(stream)]


def _flow_control(stream: str) -> list[str]:
    # The second form carries domain and account in front, as servers from 2.16 on send it.
    return [f"$JS.FC.{stream}.*.*", f"$JS.FC.*.*.{stream}.*.*"]
