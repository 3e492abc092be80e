"""Words of trust that both ends share: conditions, metrics, and completeness of hours. Pure.

Enter at `conditions` and `completeness`; `vehicle_conditions` lists all that can be wrong with a
vehicle. Nothing here decodes a message.
"""
