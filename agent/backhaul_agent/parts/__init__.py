"""All parts of the agent around an open ledger: made, wired, run and stopped in order.

Enter with `agent_parts.Parts`. Each module beside it makes the parts of one subject, and knows which
of them run, which serve a connection, and what they report. It must know neither how the ledger was
opened nor the process.
"""
