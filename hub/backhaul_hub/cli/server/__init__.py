"""Subcommands about the hub itself: made, run, saved, put back, and looked at.

Enter at the module that bears the subcommand's name.
"""
