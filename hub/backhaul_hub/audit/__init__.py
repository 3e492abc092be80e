"""Acts of people and operators, in the stream AUDIT, to which entries are only ever added (ADR 58).

Enter at `log`, which the control plane writes with, and `trail`, which reads and checks. Nothing here decides anything.
"""
