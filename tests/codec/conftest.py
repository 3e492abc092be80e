"""Settings for property tests."""

from hypothesis import settings

# A shared machine stalls now and then for longer than hypothesis thinks a test may take; the
# timeout of pytest still holds.
settings.register_profile("backhaul", deadline=None)
settings.load_profile("backhaul")
