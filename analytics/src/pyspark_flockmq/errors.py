"""What the Data Source raises. Each message is one line that says what, where and how to mend it."""


class OptionError(ValueError):
    """An option is unknown, missing or malformed."""


class RedisUnavailable(ConnectionError):
    """Redis can't be reached, refuses the password, or doesn't answer in time."""


class NotReplicated(RedisUnavailable):
    """Redis could lose its newest entries in a failover; they are there, and are replicated later."""
