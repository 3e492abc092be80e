"""Shared parts of the three programs: subcommands and logs.

Enter at `command_line` and `json_logs`. Nothing here knows points or messages.
"""
