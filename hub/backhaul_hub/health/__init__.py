"""How the hub and its fleet are: conditions, metrics, and `status`.

Enter at `judge` (conditions, without I/O) and `watch` (looks). Each condition names the
vehicle, the cause, and the command that mends it. Nothing here changes anything.
"""
