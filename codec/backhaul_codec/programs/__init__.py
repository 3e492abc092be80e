"""Shared parts of the three programs: subcommands, logs, and texts for configuration files.

Enter at `command_line` and `json_logs`. Nothing here knows points or messages.
"""
