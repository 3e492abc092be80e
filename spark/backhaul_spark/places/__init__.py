"""Where vehicles were: trips, stops and the crossing of fences, restated exactly where points have come in since.

Enter at `job`; `fold` is the decision about one vehicle's hour, `tasks` runs it on executors. What is pure
here knows no tables: `earth`, `fixes`, `segments`, `crossings`, `meters`.
"""
