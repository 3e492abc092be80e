"""A vehicle's report on itself to the hub: its machine, its version, and its health.

Enter at `self_report`. `machine` reads the machine's identity, so that the hub notices two machines
with one. Nothing here judges conditions (`status.health` does), or sends anything itself.
"""
