"""Every error the agent raises on purpose, as one tree.

AgentError
├── ConfigError            a configuration file or value is not usable
class EnrolmentFailedError(AgentError):
    """The hub did not enrol us; nothing is lost, and ``hint`` says how to go on.

    ``code``: the hub's reason (`backhaul_codec.enrolment`), ``foreign``, or empty: no answer.
    """

    def __init__(self, problem: str, *, hint: str, code: str = "") -> None:
        super().__init__(f"{problem} ({hint})")
        self.hint = hint
        self.code = code
