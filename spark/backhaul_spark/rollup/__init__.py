"""Windows of minutes, hours, and days: restated exactly where points have come in since.

Enter at `rollup`; `plan` cuts the work, `tasks` does it on executors, `known_at` reads a window as
it once was known.
"""
