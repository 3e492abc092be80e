"""Questions between vehicle and hub beside points: enrolment, identities, artifacts. Pure.

Enter at the module that bears the subject's name. `words` holds what either says of lanes. Nothing
here knows frames.
"""
