"""Operators' commands at the hub: sent, followed, and ended.

Enter at `service`. `book` decides without I/O over the commands that are not over; `outcome` says how one
ends, and by whose word; `delivery` reads a published one; `rows` keeps them in hub.db. Only the vehicle
knows how a command is run.
"""
