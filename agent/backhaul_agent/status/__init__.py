"""How the vehicle is: status, conditions, metrics, and the report to the hub.

Enter at `service` (`agent.status`) and `health` (conditions, judged without I/O). `metrics` and
`self_report` are drawn from the same status. Nothing here changes anything: this room only looks.
"""
