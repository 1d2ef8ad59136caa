"""The options of a command that choose which photos are considered: one for each row of `FILTERS`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

from fishermix.errors import FishermixError
from typer import Option

from fishermix_photos.index.filters import FILTERS, BadFilter, Filter

OPTIONS = {kind.name: kind for kind in FILTERS if kind.parameter is not None}


def add_filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `filter` is made of options, which are where the parameter is."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "filter":
            parameters.append(parameter)
            continue
        for kind in OPTIONS.values():
            option = Option(f"--{kind.parameter}", metavar=kind.metavar or None, help=kind.help)
            annotation = Annotated[bool if kind.is_flag else str | None, option]  # type: ignore[valid-type]
            default = False if kind.is_flag else None
            parameters.append(parameter.replace(name=kind.name, default=default, annotation=annotation))

    def run(**values: Any) -> None:
        conditions = {name: values.pop(name) for name in OPTIONS}
        command(**values, filter=_make_filter(conditions))

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _make_filter(conditions: dict[str, Any]) -> Filter:
    """The filter of these conditions; a mistake is reported with the name of its option."""
    try:
        return Filter(**conditions)
    except BadFilter as error:
        field = str(error.values["field"])
        if "before" in error.values:
            message = f"--after {conditions['after']} is later than --before {error.values['before']}."
        else:
            option = OPTIONS[field].parameter if field in OPTIONS else field
            message = f"--{option}{str(error).removeprefix(field)}"
        raise FishermixError(message, code=error.code) from None
