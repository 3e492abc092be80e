"""Subcommands about vehicles' contents: values, shadows, events, commands, and files.

Enter at the module that bears the subcommand's name.
"""
