"""Time asked of the hub, and stamps corrected that were made before it was known.

Enter at `timekeeper`. `exchange` asks, `correct_stamps` rewrites stamps before their messages
leave. What the time is, `hub_time` decides.
"""
