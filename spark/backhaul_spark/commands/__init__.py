"""The subcommands of backhaul-spark, one a file. Heavy imports happen inside them."""
