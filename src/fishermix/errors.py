"""The one exception that a user's mistake raises, and the one warning that a user can act on."""


class FishermixError(ValueError):
    """A mistake that the user can fix: the message says what is wrong, where, and how to fix it.

    The command line prints the message without a traceback and exits with code 1.
    """


class FishermixWarning(UserWarning):
    """A result that the user should check: the message says what happened and what to change.

    The command line prints the message on one line; warnings of other packages keep Python's format.
    """
