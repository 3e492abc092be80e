"""A hub directory, made: `backhaul-hub init`.

Enter at `hub_directory`; `server_config` writes hub.conf as text.
"""
