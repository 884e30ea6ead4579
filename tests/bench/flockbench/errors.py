"""What can go wrong for a reason that a user can mend: each error's text is the one line they see."""


class BenchError(Exception):
    """The run can't go on."""


class Missing(BenchError):
    """A broker can't be had here; the run goes on without it."""


class Failed(BenchError):
    """A broker failed a shape; its cell stays empty, and the run goes on."""
