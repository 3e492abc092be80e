"""The NATS client as agent and hub need it.

Enter at `hardy_client`. This room is the codec's only one that does I/O.
"""
