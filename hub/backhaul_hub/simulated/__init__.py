"""Vehicles without an agent, by the thousand, to try a hub: `backhaul-hub simulate`.

Enter at `fleet`. They speak as agents do, over real leaf connections. Nothing of the hub imports
this room but `cli`.
"""
