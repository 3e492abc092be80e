"""The rows of hub.db about lanes: how far each is held, blocks, marks, imports, and the hours judged by them.

Enter at `lane_rows`, and at `completeness` for hours. `device_words` decides without I/O. This room
reads no stream: `uplink` does, and has these rows written with its read positions.
"""
