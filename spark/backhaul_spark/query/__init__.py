"""Answers for one series of one device, and a picture of it. No Spark, no JVM.

Enter at `history`; `plot` draws.
"""
