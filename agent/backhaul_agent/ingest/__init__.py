"""What local programs publish: received, checked, queued, and answered when it is durable.

Enter at `listener`. `parse` and `parse_event` check without I/O, `program_json` reads JSON
strictly; `replay_service` takes recordings, each row once. Nothing here knows lanes, epochs, or the
link.
"""
