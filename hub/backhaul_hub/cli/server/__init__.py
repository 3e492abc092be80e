"""Subcommands about the hub itself: made, run, saved, restored, and looked at.

Enter at the module that bears the subcommand's name.
"""
