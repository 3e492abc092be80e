"""Subcommands that ask the agent that runs here: for its status, values, history, events, and files.

Enter at the module that bears the subcommand's name.
"""
