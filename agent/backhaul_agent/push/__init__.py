"""Messages that go to the hub beside the stream, while a lane only trickles and the hub does not source it.

Enter at `pusher`; `policy` decides without I/O which lanes are pushed. OUT has each message as always, and the
hub's watermark confirms it as always: a push that is lost has the lane sourced again.
"""
