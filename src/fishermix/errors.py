"""The one exception a user's mistake raises."""


class FishermixError(ValueError):
    """Something the user can mend: the message names what is wrong and what to do about it.

    The command line prints it without a traceback and exits with 1.
    """
