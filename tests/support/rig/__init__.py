"""Real vehicles and hubs for tests, the demo, and benchmarks: every process and link, on free ports.

Enter at `parts` (a hub, a vehicle, one process) and `cluster` (a hub of three servers). `relay` and
`shaped_relay` are links that can be cut or slowed down. Whatever starts here is ended by its id.
"""
