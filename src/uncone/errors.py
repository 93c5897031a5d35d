"""What can go wrong, said once: every error a user can cause is an `UnconeError` whose message is a way out."""


class UnconeError(Exception):
    """Anything uncone refuses or cannot do. The message says what was expected, what came and what to do."""


class InputError(UnconeError, ValueError):
    """The input is not what it must be: a missing or lying file, a wrong shape, rows that are not finite."""


class UndefinedMeasure(UnconeError, ArithmeticError):  # noqa: N818 - the name is a result, not an accident
    """The measure has no value on this input (too few rows, no direction, no variance)."""


class UnsupportedModel(UnconeError):  # noqa: N818
    """The model is readable, but uncone does not know how its table or head lies in it, or a package is missing."""
