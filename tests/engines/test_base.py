"""What every decoder shares: the range of an option."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.engines.base import in_range
from reweigh.errors import InputError


def test_a_number_in_its_range_is_itself():
    assert in_range("alpha", 0.5, 0, 1) == 0.5
    assert in_range("alpha", np.float64(1), 0, 1) == 1


@pytest.mark.parametrize("wrong", ["abc", True, None, [0.5]])
def test_what_is_not_a_number_is_refused_by_the_options_name(wrong):
    with pytest.raises(InputError, match="alpha"):
        in_range("alpha", wrong, 0, 1)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_number_outside_is_refused(wrong):
    with pytest.raises(InputError, match="0 to 1"):
        in_range("alpha", wrong, 0, 1)
