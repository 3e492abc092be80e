"""Operators' commands at the hub: sent, followed, and ended.

Enter at `service`. `lifecycle` is the state machine without I/O (sent, accepted, started, done,
failed, expired, interrupted); `rows` keeps it in hub.db. How a command is run, only the vehicle
knows.
"""
