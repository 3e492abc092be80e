"""The Delta tables: names, columns, files, and commits.

Enter at `delta` and `schemas`. `part_writer` writes a task's files, `superseded` keeps former
versions of rows. Nothing here knows what a message is.
"""
