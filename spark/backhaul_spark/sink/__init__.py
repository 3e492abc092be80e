"""Outcomes of the rules, sent to the hub and written to tables, each once.

Enter at `outlet`. `told` remembers what was sent. Nothing here judges a reading.
"""
