"""Candidates against a stable sort and float64 masses, as on the CPU and as on an accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from reweigh.errors import InputError, NumericsError
from reweigh.method.edit import candidates

pytestmark = pytest.mark.numerics

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NEAR = 1e-5
"""Float32 probabilities: a mass this close to the threshold may fall on either side of it."""


def twin(row: Tensor, mass: float, least: int, most: int) -> tuple[list[int], int, bool]:
    """Ids in order, the number of candidates, and whether that number hangs on the last digits of a mass."""
    values = [float(value) for value in row.double()]
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))
    top = values[order[0]]
    weights = np.exp(np.array(values) - top)
    total = 0.0
    number, doubtful = 0, False
    for token in order:
        number += 1
        total += weights[token] / weights.sum()
        doubtful |= abs(total - mass) < NEAR
        if total >= mass:
            break
    return order[:most], min(max(number, least), most, len(values)), doubtful


def check(logits: Tensor, mass: float = 0.9, least: int = 2, most: int = 50) -> None:
    found = candidates(logits, mass=mass, least=least, most=most)
    width = min(most, logits.shape[1])
    assert found.ids.shape == found.keep.shape == found.logits.shape == (logits.shape[0], width)
    for b, row in enumerate(logits):
        ids, number, doubtful = twin(row, mass, least, most)
        assert found.ids[b].tolist() == ids
        assert found.logits[b].tolist() == row[ids].float().tolist()
        kept = int(found.keep[b].sum())
        assert found.keep[b].tolist() == [k < kept for k in range(width)]
        assert kept == number or doubtful
        alone = candidates(logits[b : b + 1], mass=mass, least=least, most=most)
        assert torch.equal(alone.ids[0], found.ids[b])
        assert torch.equal(alone.keep[0], found.keep[b])


def rows(vocab: int, seed: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(5, vocab, generator=random)

    coin = torch.rand(5, vocab, generator=random) < 0.5
    masked = torch.where(coin, -float("inf"), normal())
    masked[:, 0] = 1.0
    one = torch.full((5, vocab), -float("inf"))
    one[:, vocab // 2] = 0.0
    return {
        "flat": normal(),
        "peaked": 6 * normal(),
        "constant": torch.full((5, vocab), 2.5),
        "signed zeros": torch.where(coin, torch.tensor(-0.0), torch.tensor(0.0)),
        "two values": coin.float() * 3,
        "few levels": (2 * normal()).round(),
        "masked": masked,
        "one possible": one,
        "denormals": 1e-41 * normal(),
    }


@pytest.fixture(params=["cpu", "accelerator"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs as on the CPU, and as on an accelerator, whose values are not looked at."""
    if request.param == "accelerator":
        monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    return str(request.param)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [1, 2, 49, 50, 51, 52, 700])
def test_the_rule(dtype: torch.dtype, vocab: int) -> None:
    for logits in rows(vocab, seed=vocab).values():
        check(logits.to(dtype))


@pytest.mark.parametrize(("mass", "least", "most"), [(0.5, 1, 10), (1.0, 3, 3), (0.99, 2, 200), (1e-9, 1, 1)])
def test_other_rules(mass: float, least: int, most: int) -> None:
    for logits in rows(300, seed=1).values():
        check(logits, mass, least, most)


values = st.floats(-30, 30, width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0, -float("inf")])


@settings(max_examples=60)
@given(data=st.data())
def test_any_rows(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(1, 70))
    some = data.draw(st.lists(st.lists(values, min_size=vocab, max_size=vocab), min_size=1, max_size=3))
    logits = torch.tensor(some, dtype=torch.float32)
    logits[:, data.draw(st.integers(0, vocab - 1))] = 1.5  # at least one finite logit in every row
    check(logits, most=data.draw(st.sampled_from([2, 5, 50])))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    spread=st.floats(0, 12),
    mass=st.sampled_from([0.25, 0.5, 0.9, 0.99, 1.0]) | st.floats(0.01, 1.0),
)
def test_every_device_keeps_the_same(seed: int, spread: float, mass: float) -> None:
    logits = spread * torch.randn(4, 128, generator=torch.Generator().manual_seed(seed))
    logits[1] = logits[1].round()
    logits[2] = 0.0  # masses that meet a quarter and a half exactly
    for most in (50, 128):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(torch.Tensor, "is_cpu", True)
            looked = candidates(logits, mass=mass, most=most)
            patched.setattr(torch.Tensor, "is_cpu", False)
            blind = candidates(logits, mass=mass, most=most)
        assert torch.equal(looked.ids, blind.ids)
        assert torch.equal(looked.keep, blind.keep)


class LikeDeterministicCuda(TorchDispatchMode):
    """Refuses what CUDA refuses under ``torch.use_deterministic_algorithms``: cumulative sums of floats."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten.cumsum and result.is_floating_point():
            raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")
        return result


def test_accelerators_may_be_asked_for_deterministic_operations() -> None:
    logits = rows(300, seed=4)["flat"]
    with LikeDeterministicCuda():
        with pytest.raises(RuntimeError, match="cumsum"):
            logits.cumsum(dim=1, dtype=torch.float64)
        found = candidates(logits)
    assert found.keep.any()


def test_more_ties_than_places_keep_the_lowest_ids() -> None:
    logits = torch.zeros(1, 4000)
    logits[0, 3000] = 1.0
    assert candidates(logits).ids[0].tolist() == [3000, *range(49)]


def test_the_input_is_not_touched() -> None:
    logits = rows(300, seed=2)["few levels"]
    before = logits.clone()
    candidates(logits)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_without_a_distribution_is_refused(bad: float, path: str) -> None:
    logits = torch.zeros(3, 60)
    logits[1, 5] = bad
    if path == "accelerator":  # marked instead, since looking would synchronise
        found = candidates(logits)
        assert found.sound.tolist() == [True, False, True]
        assert found.keep.any(dim=1).tolist() == [True, False, True]
        return
    with pytest.raises(NumericsError, match="row 1 "):
        candidates(logits)
    with pytest.raises(NumericsError, match="-inf"):
        candidates(torch.full((1, 60), -float("inf")))


def test_wrong_input_is_named() -> None:
    for logits in (torch.zeros(5), torch.zeros(2, 0), torch.zeros(2, 5, dtype=torch.int64)):
        with pytest.raises(InputError, match="floats"):
            candidates(logits)
    for rule in ({"mass": 0.0}, {"mass": 1.5}, {"least": 0}, {"least": 60}):
        with pytest.raises(InputError, match="need"):
            candidates(torch.zeros(2, 5), **rule)  # type: ignore[arg-type]
