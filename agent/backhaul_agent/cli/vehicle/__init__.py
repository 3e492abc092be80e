"""Subcommands about the vehicle itself: its agent, identity, files, local programs, and recordings.

Enter at the module that bears the subcommand's name.
"""
