"""Name the subjects that messages travel on, and read them back.

On a vehicle: `f.<node>` frames, `b` bundles of all nodes that share a lane, `d.<digest>` dictionaries of
bundles, `p.<node>.<type>.<key>` points, `p.<parent>.<node>.<type>.<key>`
points of an edge, `p.<node>` and `p.<parent>.<node>` frames of such points that hold or fall as one,
`e.<kind>` events of the agent's own, `e.app.<kind>` events that programs report, `r.<command id>`
results. Of a node with a lane of its own the same after `n.<node>.`.
At the hub all of it with `up.<device>.` before it, set by the hub's own stream, never
by the device. What `backhaul-hub import` brings stands in a stream of its own, as `import.<device>.f.<node>`
and `import.<device>.e.import`: no vehicle can say anything there.
"""

import re
from dataclasses import dataclass, replace
from operator import itemgetter

from backhaul_codec.kinds import (
    BUNDLE,
    BY_PREFIX,
    DICTIONARY,
    FRAME,
    KINDS,
    POINT,
    REPORT,
    SHARED_LANES,
    SYSTEM,
    Lane,
    MessageKind,
    system_kind,
)
from backhaul_codec.points import Kind

BUNDLE_SUBJECT = BUNDLE.prefix
"""The subject of bundles on their vehicle."""

_NODE_LANE = "n_"
# Of readings that an operator imported at the hub; no vehicle has it.
IMPORT: Lane = "import"
IMPORT_STREAM = "IMPORT"
DICTIONARY_STREAM = "DICT"
"""Where the hub keeps vehicles' dictionaries for all readers."""
# The longest name made of a lane is `<device>-<device token>_n_<token>`, a consumer's: a server takes
# 255 bytes, and 63 and 64 are allowed before.
NODE_TOKEN_MAX = 124

# In a frame of an edge's points, a type that starts so is a point of the edge's lower node.
NODE_TYPE_PREFIX = "node:"

DEVICE_ID = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")

_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_BYTE_TOKENS = [chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in range(256)]
_DIGEST = re.compile(r"\A[0-9a-f]{12}\Z")
_EMPTY = "%"
_APP = REPORT.prefix.partition(".")[2]
_FIELDS = ("node", "type", "key", "parent")
# By first token, and how many follow: the kind, the token that must follow, and a getter of _FIELDS from
# the tokens and a None behind them.
_WAYS = {
    (first, bool(fixed) + len(names)): (
        *(kind, fixed),
        itemgetter(*(names.index(each) + bool(fixed) if each in names else -1 for each in _FIELDS)),
    )
    for kind in KINDS
    for first, _, fixed in [kind.prefix.partition(".")]
    for names in map(str.split, kind.names)
}


class SubjectError(ValueError):
    """Say why a text is not a subject, or a token of one."""


@dataclass(frozen=True, slots=True)
class Uplink:
    """Hold the names in a subject `up.<device>.<leaf subject>`.

    `kind`: a row of `kinds`. `node`: of frames and points; None of bundles. `type`: of points, and the kind of an
    event; None of frames. `key`: of points, the id of a result's command, the digest of a dictionary. `parent`: of the
    points of an edge, whose `node` is the lower end. `lane_node`: whose lane it is, if of one node.
    """

    device: str
    lane: Lane
    leaf_subject: str
    kind: MessageKind
    node: str | None = None
    type: str | None = None
    key: str | None = None
    parent: str | None = None
    lane_node: str | None = None

    @property
    def letter(self) -> str:
        """Return the kind's letter in the table points."""
        return self.kind.letter

    @property
    def frame(self) -> bool:
        """Tell whether the body must be a frame of one node."""
        return self.kind is FRAME or (self.kind is POINT and self.type is None)

    @property
    def body_kind(self) -> Kind:
        """Return the kind of body that the subject calls for."""
        if self.kind is BUNDLE:
            return Kind.BUNDLE
        if self.kind is DICTIONARY:
            return Kind.DICTIONARY
        return Kind.FRAME if self.frame else Kind.POINT

    @property
    def frame_node(self) -> str | None:
        """Return the node that a frame must say it is of, None where the body is no frame."""
        return self.node if self.frame else None

    @property
    def system(self) -> bool:
        """Tell whether no history has it: some events of the agent's own, and dictionaries."""
        if self.kind is DICTIONARY:
            return True
        return self.kind is SYSTEM and not system_kind(self.type or "").history


def encode_token(text: str) -> str:
    """Percent-encode a name for a subject; an empty name is a single `%`. Raises: SubjectError."""
    if not text:
        return _EMPTY
    try:
        return "".join([_BYTE_TOKENS[byte] for byte in text.encode()])
    except UnicodeEncodeError as error:
        raise SubjectError("a name has a lone surrogate and no UTF-8 form") from error


def decode_token(token: str) -> str:
    """Return the name that a token stands for; each name has exactly one token.

    Raises: SubjectError for anything that encode_token would not have written.
    """
    if token == _EMPTY:
        return ""
    if not _TOKEN.fullmatch(token):
        raise SubjectError(f"{token[:80]!r} is not a subject token")
    if "%" not in token:
        return token
    raw = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), token).encode("latin-1")
    try:
        name = raw.decode()
    except UnicodeDecodeError as error:
        raise SubjectError(f"the token {token[:80]!r} is not UTF-8") from error
    if encode_token(name) != token:
        raise SubjectError(f"the token {token[:80]!r} escapes what needs no escape")
    return name


def frame_subject(node: str) -> str:
    """Return the subject of a node's telemetry frames on its vehicle."""
    return f"f.{encode_token(node)}"


def dictionary_subject(digest: bytes) -> str:
    """Return the subject of a dictionary on its vehicle."""
    return f"{DICTIONARY.prefix}.{digest.hex()}"


def stored_dictionary_subject(device: str, digest: bytes) -> str:
    """Return the subject of a device's dictionary in the hub's stream of them."""
    return f"dict.{device}.{digest.hex()}"


def point_subject(node: str, type: str, key: str = "") -> str:
    """Return the subject of one series' points on its vehicle."""
    return f"p.{encode_token(node)}.{encode_token(type)}.{encode_token(key)}"


def edge_subject(parent: str, node: str, type: str, key: str = "") -> str:
    """Return the subject of the points of the edge from a parent down to a node.

    Raises: SubjectError, for an edge from no node, or a type that starts with NODE_TYPE_PREFIX.
    """
    _require_edge(parent, type)
    return f"p.{encode_token(parent)}.{point_subject(node, type, key)[2:]}"


def node_frame_subject(node: str) -> str:
    """Return the subject of a frame of a node's own points, applied whole or not at all."""
    return f"p.{encode_token(node)}"


def edge_frame_subject(parent: str, node: str) -> str:
    """Return the subject of a frame of an edge's points, applied whole or not at all.

    Raises: SubjectError, for an edge from no node.
    """
    _require_edge(parent, "")
    return f"p.{encode_token(parent)}.{encode_token(node)}"


def event_subject(kind: str) -> str:
    """Return the subject of events of a kind on their vehicle."""
    return f"e.{encode_token(kind)}"


def app_event_subject(kind: str) -> str:
    """Return the subject of events of a kind that programs report, on their vehicle.

    Raises: SubjectError, for a kind without a name.
    """
    if not kind:
        raise SubjectError("an event has a kind")
    return f"e.{_APP}.{encode_token(kind)}"


def result_subject(command: str) -> str:
    """Return the subject of a vehicle's result of a command, by the command's id."""
    return f"r.{encode_token(command)}"


def node_lane(node: str) -> Lane:
    """Return the name of a node's own lane: a token, fit for a subject and a stream's name."""
    return _NODE_LANE + encode_token(node)


def require_own_lane(node: str) -> Lane:
    """Return the lane of a node that is to have one of its own.

    Raises: SubjectError, where no stream or consumer could be called so.
    """
    token = encode_token(node) if node else ""
    if not 0 < len(token) <= NODE_TOKEN_MAX:
        raise SubjectError(
            f"{node[:80]!r} cannot have a lane of its own: its name takes {len(token)} bytes in a "
            f"subject, 1 to {NODE_TOKEN_MAX} are allowed"
        )
    return node_lane(node)


def node_of_lane(lane: Lane) -> str | None:
    """Return whose lane it is, None if it is the device's. Raises: SubjectError if it is no lane."""
    if lane in SHARED_LANES:
        return None
    if not lane.startswith(_NODE_LANE):
        raise SubjectError(f"{lane[:80]!r} is no lane")
    return decode_token(lane.removeprefix(_NODE_LANE))


def node_lane_subject(node: str, leaf_subject: str) -> str:
    """Return a leaf subject as it is in the node's own lane."""
    return f"n.{encode_token(node)}.{leaf_subject}"


def shared_subject(leaf_subject: str) -> str:
    """Return a leaf subject without the `n.<node>.` of a node's own lane; any other as it is."""
    return leaf_subject.split(".", 2)[-1] if leaf_subject.startswith("n.") else leaf_subject


def lane_of(leaf_subject: str) -> Lane:
    """Return the lane that a leaf subject belongs to. Raises: SubjectError for any other subject."""
    prefix, _, rest = leaf_subject.partition(".")
    if prefix in BY_PREFIX:
        return BY_PREFIX[prefix].lane
    if prefix == "n":
        return node_lane(decode_token(rest.partition(".")[0]))
    raise SubjectError(f"{leaf_subject[:80]!r} belongs to no lane")


def import_subject(device: str, leaf_subject: str) -> str:
    """Return the subject of a device's imported messages."""
    return f"{IMPORT}.{device}.{leaf_subject}"


def parse_uplink(subject: str) -> Uplink:
    """Read `up.<device>.<leaf subject>`, or an imported message's subject. Raises: SubjectError."""
    prefix, _, rest = subject.partition(".")
    device, _, leaf_subject = rest.partition(".")
    if prefix == IMPORT and DEVICE_ID.match(device):
        return parse_import(leaf_subject, device)
    if prefix != "up" or not DEVICE_ID.match(device):
        raise SubjectError(f"{subject[:80]!r} is not up.<device>.<leaf subject>")
    return parse_leaf(leaf_subject, device)


def parse_leaf(leaf_subject: str, device: str = "") -> Uplink:
    """Read a subject as it is on the vehicle. Raises: SubjectError."""
    lane = lane_of(leaf_subject)
    prefix, *tokens = leaf_subject.split(".")
    if prefix == "n":
        return _of_node_lane(leaf_subject, device, lane)
    names = [decode_token(token) for token in tokens]
    if (way := _WAYS.get((prefix, len(names)))) is not None:
        kind, fixed, pick = way
        node, type_, key, parent = pick([*names, None])
        if parent is not None:
            _require_edge(parent, type_ or "")
        fits = not fixed or (names[0] == fixed and bool(names[1]))
        if kind is DICTIONARY:
            fits = bool(_DIGEST.match(names[0]))
        if fits:
            return Uplink(device, lane, leaf_subject, kind, node, type_, key, parent)
    raise SubjectError(f"{leaf_subject[:80]!r} has the wrong number of tokens")


def parse_import(leaf_subject: str, device: str = "") -> Uplink:
    """Read the part behind `import.<device>.`: a frame, or the import's word. Raises: SubjectError."""
    found = parse_leaf(leaf_subject, device)
    if found.lane_node is not None or (found.kind, found.type) not in (
        (FRAME, None),
        (SYSTEM, IMPORT),
    ):
        raise SubjectError(f"{leaf_subject[:80]!r} is nothing that is imported")
    return replace(found, lane=IMPORT)


def _of_node_lane(leaf_subject: str, device: str, lane: Lane) -> Uplink:
    """Read `n.<node>.<leaf subject>`; every node named in it must be this one (an edge: below)."""
    node = node_of_lane(lane)
    rest = leaf_subject.split(".", 2)[-1]
    inner = None if rest.startswith("n.") else parse_leaf(rest, device)
    # A bundle is of the nodes that share a lane.
    if inner is None or inner.node not in (None, node) or inner.kind in (BUNDLE, DICTIONARY):
        raise SubjectError(f"{leaf_subject[:80]!r} is not of the lane of {node!r}")
    return replace(inner, lane=lane, leaf_subject=leaf_subject, lane_node=node)


def _require_edge(parent: str, type_: str) -> None:
    # An empty parent is how heads tell a node's own points from those of an edge.
    if not parent:
        raise SubjectError("an edge comes down from a node, and that has a name")
    if type_.startswith(NODE_TYPE_PREFIX):
        raise SubjectError(
            f"the type {type_[:80]!r} is of frames only, for the lower node's points"
        )
