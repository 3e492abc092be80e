"""Messages of the hub: the stream IN, and each node's own, read in order and told once.

Enter at `downlink`. `reader` reads one stream, `position` decides without I/O what was read.
Nothing here knows what a message means: the receivers register for their kinds.
"""
