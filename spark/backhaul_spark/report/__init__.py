"""One page about a day of the fleet, with its pictures, and the evidence of each anomaly.

Enter at `report`. This room reads what `fleet` has written, and the rollups; it writes the page
alone.
"""
