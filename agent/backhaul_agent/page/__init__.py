"""The technician's page: the state of this vehicle, served to a browser beside it.

Enter at `technician.TechnicianPage`. `gate` (codes and sessions) and `live_values` are pure; `web` answers HTTP in threads
of its own, and `answers` the page's questions on the agent's loop. It may look, and publish points of one node.
"""
