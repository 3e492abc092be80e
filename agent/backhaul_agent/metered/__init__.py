"""Links that cost money: when the leaf server may be connected to the hub, for how long, and for how many bytes.

Enter at `controller` and `account`. `policy` and `budget` decide without I/O; `link_switch` adds and
removes the link, `thinning` refuses telemetry, `roaming` tells where the vehicle is. Nothing here
knows which messages wait, but how many.
"""
