"""The streams of the twin: states and events of devices, for people and for Spark.

Enter at `state_publisher` and `event_log`; `state_messages` decides without I/O.
"""
