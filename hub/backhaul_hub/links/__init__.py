"""Links of vehicles: connections, the streams that the hub sources, and the consumers down.

Enter at `source_keeper` (the relays before UP) and `down_consumers` (DOWN). `sources` decides without I/O;
`clock_service` and `reset_service` answer vehicles. What the messages hold, `uplink` reads.
"""
