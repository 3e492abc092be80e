"""The stream UP, read: continuity kept, receivers told, vehicles answered.

Enter at `turns` (all shards of UP); `consumer` is what may take part. `notify` tells vehicles how
far their lanes are held, `quarantine` keeps what nobody can read, `audit` compares books and
stream. What points mean, `sync` knows.
"""
