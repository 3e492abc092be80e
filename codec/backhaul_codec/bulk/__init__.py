"""Many messages at once, as Arrow columns: for the hub's readers and Spark, with numpy and pyarrow.

Enter at `columns`. Every fast path proves its messages first and leaves the rest to `wire`, which
is the rule. A vehicle never imports this room.
"""
