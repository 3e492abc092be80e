"""Local programs' publishes: received, checked, queued, and answered when they are durable.

Enter at `listener`. `parse` and `parse_event` check without I/O, `program_json` reads JSON
strictly; `replay_service` takes recordings, each row once. Nothing here knows lanes, epochs, or the
link.
"""
