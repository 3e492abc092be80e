"""Stand-by: each transaction of hub.db goes to a journal first; other machines follow it, and one of them leads.

Enter at `machine`. Pure are `entry`, `judgement`, `patience` and `report`. It knows nothing of what a control plane
does: `control` hands it one to run.
"""
