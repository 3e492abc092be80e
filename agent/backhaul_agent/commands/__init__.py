"""Operators' commands on the vehicle: accepted, run once, and answered for.

Enter at `service`. `decide` judges each command (run, wait, expired, interrupted) without I/O;
`outcome` holds the ends and their sentences; `handlers` runs an executable or asks a local program;
`child` watches one process. The rows of commands are the ledger's (`ledger.command_rows`).
"""
