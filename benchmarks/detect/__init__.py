"""How well unusual readings are found, in one series and in several together, beside rivals and NAB's scoreboard.

Nothing here starts a server or Spark.
"""
