"""Links that cost money: when the leaf server may be connected to the hub, and for how long.

Enter at `controller`. `policy` is the state machine without I/O; `link_switch` adds and removes the
link. Nothing here knows which messages wait, but how many.
"""
