"""`python -m backhaul_agent`: the same as `backhaul-agent`."""

from backhaul_agent.cli.main import main

main()
