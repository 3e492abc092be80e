"""Alerts of rules, health conditions and anomalies: open and past, acknowledged, silenced, and told to people.

Enter at `service`. `book` says which alerts are open, `plan` who is due to be told what, `outbox` which
message a channel sends next, all pure; `senders` sends it. All of it is in hub.db before anything leaves.
Nothing here judges a vehicle: rules are the twin job's, conditions are `health`'s. It must not know `health`,
`people` or `broadcast`; `control.alert_shell` brings them together.
"""
