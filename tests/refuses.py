"""What a test says of a mistake: its code and what it is about, not the words of its message."""

from typing import Any

import pytest
from fishermix.errors import FishermixError


def refuses(code: str, **values: Any) -> pytest.RaisesExc[FishermixError]:
    """Expect a `FishermixError` of this code; those of its values that are named here must be equal."""

    def check(error: FishermixError) -> bool:
        return error.code == code and values.items() <= error.values.items()

    return pytest.raises(FishermixError, check=check)
