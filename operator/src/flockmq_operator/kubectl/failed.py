"""How a command ends that can't be done."""

NOT_DONE = 1
WRONG_ARGUMENTS = 2
NO_API_SERVER = 3


class Failed(Exception):
    """The message is a sentence for the user: what, where, how to mend it."""

    def __init__(self, message: str, code: int = NOT_DONE) -> None:
        super().__init__(message)
        self.code = code
