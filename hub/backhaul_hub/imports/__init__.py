"""A fleet's old logs, brought into the history at the hub: `backhaul-hub import`.

Enter at `run`. Each row has a place that follows from the file, so that a second run adds nothing;
`split` and `blocks` decide without I/O. Recordings are read by `backhaul_codec.recordings`.
"""
