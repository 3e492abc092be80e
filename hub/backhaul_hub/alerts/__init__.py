"""Alerts of rules, health conditions and anomalies: open and past, acknowledged, silenced, and told to people.

Enter at `service`. `book` keeps the open alerts, `plan` makes the notices that are due, `outbox` puts
them into messages, all pure; `senders` sends it. All of it is in hub.db before anything leaves.
Nothing here judges a vehicle: rules are the twin job's, conditions are `health`'s. It must not know `health`,
`people` or `broadcast`; `control.alert_shell` brings them together.
"""
