"""The errors of the codec.

Exception
├── CodecError      a message, point or value that the wire format does not allow
└── MappingError    a recording cannot be read as its mapping says
"""


class CodecError(Exception):
    """Say why a message cannot be read, or a point cannot be written.

    `reason` is a sentence for a person. `code` is one word for counters and quarantine headers,
    from the list in docs/wire-format.md. `index` is the position in a batch of messages, where
    there is one. Nothing is retried: the same bytes fail the same way for ever.
    """

    def __init__(self, reason: str, code: str = "invalid", index: int | None = None) -> None:
        # All three go to Exception, so that the error survives pickling between Spark processes.
        super().__init__(reason, code, index)
        self.reason = reason
        self.code = code
        self.index = index

    def __str__(self) -> str:
        return self.reason if self.index is None else f"message {self.index}: {self.reason}"


class MappingError(Exception):
    """A recording cannot be read as its mapping says (``column`` names the place, if one does)."""

    def __init__(self, problem: str, *, column: str = "") -> None:
        super().__init__(f"column {column!r}: {problem}" if column else problem)
        self.problem = problem
        self.column = column
