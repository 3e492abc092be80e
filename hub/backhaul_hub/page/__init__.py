"""Serving the fleet's page to browsers, and passing on their logins.

Enter at `server`. It serves files, and knows neither hub.db nor keys: the page asks the hub's server itself, with
a key that never leaves the browser. `files` are built from hub/page (docs/page.md).
"""
