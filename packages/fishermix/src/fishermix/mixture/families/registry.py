"""Families by name: what `families=[...]` may say, and what a saved mixture refers to."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

from fishermix.errors import FishermixError
from fishermix.mixture.families import builtin
from fishermix.mixture.families.base import Family
from fishermix.mixture.families.builtin import Gaussian, Laplace, Logistic, StudentT
from fishermix.mixture.families.check import check_family, check_informations

REGISTERED: dict[str, type[Family]] = {
    family.name: family for family in (Gaussian, Laplace, Logistic, StudentT)
}


def is_custom(family: Family) -> bool:
    """Whether a user wrote the family."""
    return type(family).__module__ != builtin.__name__


def register_family(family: type[Family]) -> type[Family]:
    """Let saved mixtures name this family; also a decorator. Register it before saving and before loading.

    `check_family` checks an object of the family, if its constructor works without arguments.

    Parameters
    ----------
    family : subclass of Family
        The class to register under its `name`.

    Returns
    -------
    family : subclass of Family
        The class itself.

    Examples
    --------
    >>> @register_family
    ... class Wide(Laplace):
    ...     name = "wide"
    >>> from fishermix import Mixture
    >>> Mixture(1, families=["gaussian", "wide"]).fit([[0.0], [1.0], [5.0]]).families_
    [Gaussian(), Wide()]
    """
    if not (isinstance(family, type) and issubclass(family, Family) and hasattr(family, "name")):
        raise FishermixError(
            f"register_family takes a subclass of Family with a name, got {family!r}.", code="wrong_parameter"
        )
    parameters = signature(family).parameters.values()
    if all(parameter.default is not parameter.empty for parameter in parameters):
        check_family(family())
    known = REGISTERED.setdefault(family.name, family)
    # A class of the same qualified name is the same one, run again in a notebook, but never a built-in one.
    same = known.__qualname__ == family.__qualname__ and known.__module__ != builtin.__name__
    if known is not family and not same:
        raise FishermixError(
            f"A family named '{family.name}' is already registered. Choose another name.", code="repeated"
        )
    REGISTERED[family.name] = family
    return family


def describe_family(family: Family) -> tuple[str, dict[str, Any]]:
    """Return the name and parameters of a registered family; a saved mixture never holds code."""
    if REGISTERED.get(getattr(family, "name", "")) is not type(family):
        raise FishermixError(
            f"The family {type(family).__name__} is not registered. Call "
            f"fishermix.mixture.register_family({type(family).__name__}) before saving and before loading.",
            code="not_registered",
        )
    return family.name, family.parameters()


def make_family(name: str, parameters: dict[str, Any]) -> Family:
    """Return the family that `describe_family` described."""
    if name not in REGISTERED:
        raise FishermixError(
            f"The saved mixture uses the family '{name}', which is not registered. Import the module that "
            "defines it and call fishermix.mixture.register_family first.",
            code="not_registered",
        )
    try:
        return REGISTERED[name](**parameters)
    except (TypeError, ValueError) as error:
        raise FishermixError(
            f"The saved parameters of the family '{name}' are invalid ({error}).", code="damaged"
        ) from error


def parse_families(given: Sequence[str | Family]) -> list[Family]:
    """The families that a user named or made, checked."""
    if isinstance(given, str) or not len(given):
        raise FishermixError(
            "families must be a list such as ['gaussian', 'laplace'].", code="wrong_parameter"
        )
    families: list[Family] = []
    for family in given:
        if isinstance(family, str):
            if family not in REGISTERED:
                known = ", ".join(sorted(REGISTERED))
                raise FishermixError(
                    f"There is no family named '{family}'. Choose among: {known}.", code="wrong_parameter"
                )
            family = REGISTERED[family]()
        if isinstance(family, type) and issubclass(family, Family):
            raise FishermixError(
                f"{family.__name__} is a class. Pass an object, {family.__name__}(...).",
                code="wrong_parameter",
            )
        if not isinstance(family, Family):
            raise FishermixError(
                f"A family is a name such as 'laplace' or a Family object, got {family!r}.",
                code="wrong_parameter",
            )
        if is_custom(family):
            check_family(family, quick=True)
            check_informations(family)
        if family in families:
            raise FishermixError(f"families contains '{family.name}' twice.", code="wrong_parameter")
        families.append(family)
    return families
