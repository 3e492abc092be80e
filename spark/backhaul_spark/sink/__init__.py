"""Outcomes of the rules, sent to the hub and written to tables, each once.

Enter at `outlet`. `alert_tables` remembers what was sent. Nothing here judges a reading.
"""
