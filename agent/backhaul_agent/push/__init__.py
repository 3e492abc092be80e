"""Messages that pass the link beside the streams, while a lane only trickles and the hub does not source it.

Enter at `pusher`; `policy` decides without I/O which lanes are pushed. OUT has each message as always, and the
hub's watermark confirms it as always: a push that is lost has the lane sourced again. `sleeper` does the same for
IN: the hub speaks beside it, and `in_sleep` decides without I/O when IN sources DOWN.
"""
