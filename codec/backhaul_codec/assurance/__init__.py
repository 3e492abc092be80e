"""Words of trust that both ends share: conditions, metrics, and certificates of hours. Pure.

Enter at `conditions` and `certificates`; `vehicle_conditions` lists all that can be wrong with a
vehicle. Nothing here decodes a message.
"""
