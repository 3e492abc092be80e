"""Messages made rows on an executor: points, samples for rules, words of vehicles. No Spark.

Enter at `points` and `samples`. Decoding itself is `backhaul_codec.bulk`. Nothing here opens a
table.
"""
