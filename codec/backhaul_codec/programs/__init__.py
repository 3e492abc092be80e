"""Shared parts of the three programs: subcommands, logs, and the metrics endpoint.

Enter at `command_line`, `json_logs`, and `scrapes`. Nothing here knows points or messages.
"""
