"""The text of a vehicle's apps.conf: logins at the leaf server, and the traffic between accounts. Pure.

SYS may have the server read its configuration again, or drop its link and dial. VEH is the agent's, with JetStream and the link
to the hub. Each program has an account of its own, because a server checks no reply subject: in one
account a program could have the agent's answer sent where another listens for commands. What a program
asks reaches the agent under the program's name and by the program's door (apps/doors.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from backhaul_agent.apps.rights import (
    COMMANDS,
    DOORS,
    OFFERED,
    OPEN_COMMANDS,
    OPEN_PROGRAM,
    Apps,
    Subjects,
    door_subject,
    subjects_of,
)
from backhaul_codec.programs.nats_conf import quoted

OPEN_USER = "open"
OPEN_ACCOUNT = "APPS"
# Asked once, answered in many pieces.
_STREAMED = ("agent.history", "agent.history.>")


def render_apps(apps: Apps, *, agent_key: str, system_key: str) -> str:
    """Render apps.conf; the keys are public."""
    programs = {
        f"APP_{name}": (name, f"nkey: {app.key}", subjects_of(app))
        for name, app in apps.apps.items()
    }
    commands = [
        f"{{ service: {{ account: {account}, subject: {quoted(subject)} }} }}"
        for account, (_, _, subjects) in programs.items()
        for subject in subjects.carry_out
    ]
    if apps.open:
        programs[OPEN_ACCOUNT] = (
            OPEN_PROGRAM,
            f'user: {OPEN_USER}, password: ""',
            OFFERED,
        )
        # Under a name of their own: what a program with a key carries out, nobody else hears.
        commands.append(
            f'{{ service: {{ account: {OPEN_ACCOUNT}, subject: "{COMMANDS}.>" }},'
            f' to: "{OPEN_COMMANDS}.>" }}'
        )
    accounts = "".join(
        _account(account, number % DOORS, *program)
        for number, (account, program) in enumerate(programs.items())
    )
    anybody = "" if apps.open else _NOBODY
    return f"""\
# Who may log in to this vehicle's leaf server, by the public halves of keys. Included by leaf.conf.
# `backhaul-agent enrol` and `backhaul-agent app` write it, from apps.json.

system_account: SYS
# Whoever brings no key. A server does not read a change of this again, so it always stands here.
no_auth_user: {OPEN_USER}
accounts {{
  SYS {{
    users: [{{ nkey: {system_key}, permissions {{
      publish: ["$SYS.REQ.SERVER.PING.IDZ", "$SYS.REQ.SERVER.*.RELOAD", "$SYS.REQ.SERVER.*.LEAFZ", "$SYS.REQ.SERVER.*.KICK"]
      subscribe: ["_INBOX.>"]
    }} }}]
  }}

  # The agent: the only account with streams, and with the link to the hub.
  VEH {{
    jetstream: enabled
    users: [{{ nkey: {agent_key} }}]
    exports: [
{_lines(_export(subject) for subject in OFFERED.ask)}
{_lines(f"{{ stream: {quoted(subject)} }}" for subject in OFFERED.hear)}
    ]
    imports: [
{_lines(commands)}
    ]
  }}
{accounts}{anybody}}}
"""


# A user that no connection of a program can be: one without a key is refused.
_NOBODY = f"""
  {OPEN_ACCOUNT} {{
    users: [{{ user: {OPEN_USER}, password: "", allowed_connection_types: [LEAFNODE]
      permissions {{ publish: {{ deny: ">" }}, subscribe: {{ deny: ">" }} }} }}]
  }}
"""


def _export(subject: str) -> str:
    streamed = ", response_type: Stream" if subject in _STREAMED else ""
    return f"{{ service: {quoted(door_subject('*', '*', subject))}{streamed} }}"


def _account(account: str, door: int, name: str, login: str, subjects: Subjects) -> str:
    asked = (
        f"{{ service: {{ account: VEH, subject: {quoted(door_subject(door, name, each))} }},"
        f" to: {quoted(each)} }}"
        for each in subjects.ask
    )
    heard = (f"{{ stream: {{ account: VEH, subject: {quoted(each)} }} }}" for each in subjects.hear)
    commands = (f"{{ service: {quoted(each)}, accounts: [VEH] }}" for each in subjects.carry_out)
    return f"""
  {account} {{
    users: [{{ {login}, permissions {{
      publish: [{_list(subjects.ask)}]
      subscribe: [{_list(("_INBOX.>", *subjects.hear, *subjects.carry_out))}]
      # Answers to commands.
      allow_responses: {{ max: 1, expires: "24h" }}
    }} }}]
    imports: [
{_lines((*asked, *heard))}
    ]
    exports: [
{_lines(commands)}
    ]
  }}
"""


def _list(subjects: Iterable[str]) -> str:
    return ", ".join(map(quoted, subjects))


def _lines(items: Iterable[str]) -> str:
    return "\n".join(f"      {item}" for item in items)
