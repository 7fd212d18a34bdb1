"""Rank sums against the O(V^2) definition, for every kernel, on the values that break sorting tricks."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reweigh.errors import InputError, MismatchError, NumericsError
from reweigh.method.sums import ReadoutSums, reciprocal_ranks

pytestmark = pytest.mark.numerics

KERNELS = ["numpy", "torch", *(["numba"] if importlib.util.find_spec("numba") else [])]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def brute_ranks(logits: Tensor) -> np.ndarray:
    """The definition, row by row: one plus the number of strictly larger logits."""
    rows = logits.double().numpy()
    return np.stack([1 + (row[None, :] > row[:, None]).sum(axis=1) for row in rows])


def brute_sums(logits: Tensor) -> np.ndarray:
    return np.rint(2.0**40 / brute_ranks(logits)).sum(axis=0) / 2.0**40


def kinds(vocab: int, rows: int, seed: int) -> dict[str, Tensor]:
    """Rows of every sort that has broken a ranking: ties, signed zeros, infinities, crowds, extremes."""
    random = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(rows, vocab, generator=random)

    def share(p: float) -> Tensor:
        return torch.rand(rows, vocab, generator=random) < p

    zeros = torch.where(share(0.5), torch.tensor(-0.0), torch.tensor(0.0))
    nothing, token = torch.full((rows, vocab), -float("inf")), torch.arange(vocab)
    return {
        "gaussian": 3 * normal(),
        "constant": torch.full((rows, vocab), -1.5),
        "two values": share(0.5).float(),
        "signed zeros": torch.where(share(0.5), zeros, normal()),
        "infinities": torch.where(share(0.3), torch.sign(normal()) * float("inf"), normal()),
        "all -inf but one": nothing.index_fill(1, torch.tensor([0]), 1.0),
        "all -inf but odd ones": nothing.masked_fill(token == 33, 0.1).masked_fill(token == 11, float("inf")),
        "outliers": normal() * torch.where(share(0.05), 1000.0, 1.0),
        "cluster": torch.where(share(0.5), 1 + 1e-6 * normal(), normal()),
        "denormals": 1e-41 * normal(),
        "huge": 1e38 * normal().clamp(-3, 3),
        "cauchy": normal() / normal(),
        "exp": torch.exp(3 * normal()),
        "few levels": (2 * normal()).round(),
        "ascending": normal().sort(dim=1).values,
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [1, 2, 3, 257, 1500])
def test_sums_follow_the_definition(kernel: str, dtype: torch.dtype, vocab: int) -> None:
    few, many = torch.arange(0, vocab, 11), torch.randperm(vocab, generator=torch.Generator().manual_seed(1))
    for kind, values in kinds(vocab, rows=4, seed=vocab).items():
        logits = values.to(dtype)
        expected = brute_sums(logits)
        for tokens in (None, few, many, torch.tensor([0, 0, vocab - 1]), torch.tensor([11, 33]) % vocab):
            measured = ReadoutSums(vocab, tokens, kernel=kernel)
            measured.add(logits)
            wanted = expected if tokens is None else expected[tokens.numpy()]
            assert np.array_equal(measured.ranks.numpy(), wanted), (kind, tokens)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_wide_vocabulary_takes_the_other_paths(kernel: str, dtype: torch.dtype) -> None:
    vocab = 8500  # wide enough to count 16-bit patterns
    for kind, values in kinds(vocab, rows=2, seed=5).items():
        logits = values.to(dtype)
        rows = logits.double().numpy()
        larger = np.stack([vocab - np.searchsorted(np.sort(row), row, side="right") for row in rows])
        expected = np.rint(2.0**40 / (1 + larger)).sum(axis=0) / 2.0**40
        for tokens in (None, torch.arange(3, vocab, 17)):
            measured = ReadoutSums(vocab, tokens, kernel=kernel)
            measured.add(logits)
            wanted = expected if tokens is None else expected[tokens.numpy()]
            assert np.array_equal(measured.ranks.numpy(), wanted), (kind, tokens)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_of_another_kind_do_not_meet(kernel: str) -> None:
    sorts = kinds(600, rows=9, seed=2)
    logits = torch.cat(
        [sorts["gaussian"], sorts["outliers"], sorts["cluster"], sorts["exp"], sorts["gaussian"]]
    )
    expected = brute_sums(logits)
    for tokens in (None, torch.arange(0, 600, 9)):
        measured = ReadoutSums(600, tokens, kernel=kernel)
        measured.add(logits)
        assert np.array_equal(
            measured.ranks.numpy(), expected if tokens is None else expected[tokens.numpy()]
        )


floats = st.floats(width=32, allow_nan=False) | st.sampled_from(
    [0.0, -0.0, 1.0, 1.0000001, -1.0, float("inf")]
)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_rows_at_all(kernel: str, data: st.DataObject) -> None:
    vocab = data.draw(st.integers(1, 40))
    rows = data.draw(st.lists(st.lists(floats, min_size=vocab, max_size=vocab), min_size=1, max_size=4))
    tokens = torch.tensor(data.draw(st.lists(st.integers(0, vocab - 1), max_size=5)), dtype=torch.int64)
    logits = torch.tensor(rows, dtype=torch.float32)
    whole, some = ReadoutSums(vocab, kernel=kernel), ReadoutSums(vocab, tokens, kernel=kernel)
    whole.add(logits)
    some.add(logits)
    assert np.array_equal(whole.ranks.numpy(), brute_sums(logits))
    assert torch.equal(some.ranks, whole.ranks[tokens])
    assert torch.equal(
        reciprocal_ranks(logits, tokens), 1 / torch.from_numpy(brute_ranks(logits))[:, tokens].float()
    )


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_order_chunks_and_merging_change_no_bit(kernel: str, seed: int, cuts: list[int]) -> None:
    logits = kinds(300, rows=40, seed=seed)["gaussian"]
    whole = ReadoutSums(300, kernel=kernel)
    whole.add(logits)
    shuffled = logits[torch.randperm(40, generator=torch.Generator().manual_seed(seed))]
    parts = []
    for chunk in torch.tensor_split(shuffled, sorted(cuts)):
        part = ReadoutSums(300, kernel=kernel)
        part.add(chunk)
        parts.append(part)
    merged = ReadoutSums(300, kernel=kernel)
    for part in reversed(parts):
        merged.merge(part)
    assert merged.count == whole.count == 40
    assert torch.equal(merged.ranks, whole.ranks)
    assert torch.equal(merged.evidence(), whole.evidence())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "stretch",
    [
        lambda z: 8 * z,
        lambda z: torch.where(z > 0, z * 4, z / 2),
        lambda z: z.double().sinh().float(),  # float32 sinh differs between vector and scalar code
    ],
    ids=["8z", "kink", "sinh"],
)
def test_an_increasing_map_changes_no_bit(kernel: str, stretch: object) -> None:
    logits = (
        kinds(500, rows=6, seed=3)["gaussian"] * 64
    ).round() / 64  # coarse, so that the maps keep ties and order
    mapped = stretch(logits)  # type: ignore[operator]
    before, after = ReadoutSums(500, kernel=kernel), ReadoutSums(500, kernel=kernel)
    before.add(logits)
    after.add(mapped)
    assert torch.equal(before.ranks, after.ranks)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "torch"])
def test_threads_change_no_bit(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = kinds(9000, rows=16, seed=4)["gaussian"]
    alone = ReadoutSums(9000, kernel=kernel)
    alone.add(logits)
    monkeypatch.setattr("reweigh.method.kernels.base.WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    shared = ReadoutSums(9000, kernel=kernel)
    shared.add(logits)
    assert torch.equal(alone.ranks, shared.ranks)


@pytest.mark.parametrize("kernel", KERNELS)
def test_callers_in_threads_do_not_meet(kernel: str) -> None:
    tasks = [kinds(700, rows=8, seed=seed)["gaussian"] for seed in range(8)]

    def measure(logits: Tensor) -> Tensor:
        total = ReadoutSums(700, torch.arange(0, 700, 8), kernel=kernel)
        total.add(logits)
        return total.ranks

    expected = [measure(task) for task in tasks]
    with ThreadPoolExecutor(4) as pool:
        for want, got in zip(expected, pool.map(measure, tasks), strict=True):
            assert torch.equal(want, got)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [40, 8300])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("registered", [False, True])
def test_nan_is_refused_and_leaves_the_sum_as_it_was(
    kernel: str, dtype: torch.dtype, vocab: int, sign: float, registered: bool
) -> None:
    logits = kinds(vocab, rows=3, seed=7)["gaussian"].to(dtype)
    total = ReadoutSums(vocab, torch.tensor([1]) if registered else None, kernel=kernel)
    total.add(logits)
    before = total.ranks
    bad = logits.clone()
    bad[2, 17] = torch.copysign(torch.tensor(float("nan")), torch.tensor(sign)).to(dtype)
    with pytest.raises(NumericsError, match="token 17 at position 2"):
        total.add(bad)
    assert total.count == 3
    assert torch.equal(total.ranks, before)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_place_of_a_nan_is_reported_in_all_rows_whatever_the_threads(
    kernel: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reweigh.method.kernels.base.WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    logits = kinds(40, rows=100, seed=7)["gaussian"].to(dtype)
    logits[77, 17] = logits[80, 3] = logits[80, 4] = float("nan")
    for tokens in (None, torch.tensor([1]), torch.tensor([], dtype=torch.int64)):
        total = ReadoutSums(40, tokens, kernel=kernel)
        with pytest.raises(NumericsError, match="token 17 at position 77"):
            total.add(logits)
        assert total.count == 0


def test_the_mean_is_float32_of_the_exact_mean() -> None:
    logits = kinds(90, rows=7, seed=8)["gaussian"]
    total = ReadoutSums(90)
    total.add(logits[:3])
    total.add(logits[3:])
    exact = (1 / brute_ranks(logits)).mean(axis=0)
    assert total.evidence().dtype == torch.float32
    assert np.allclose(total.evidence().numpy(), exact, rtol=1e-7, atol=1e-12)
    assert np.abs(total.ranks.numpy() / 7 - exact).max() <= 2.0**-41


def test_wrong_input_is_named() -> None:
    with pytest.raises(NumericsError, match="position"):
        ReadoutSums(5).evidence()
    with pytest.raises(InputError, match=r"\(2, 6\)"):
        ReadoutSums(5).add(torch.zeros(2, 6))
    with pytest.raises(InputError, match="float64"):
        ReadoutSums(5).add(torch.zeros(2, 5, dtype=torch.float64))
    with pytest.raises(InputError, match="-1"):
        ReadoutSums(5, torch.tensor([-1, 5]))
    with pytest.raises(InputError, match="integer"):
        ReadoutSums(5, torch.zeros(2))
    with pytest.raises(MismatchError):
        ReadoutSums(5).merge(ReadoutSums(5, torch.tensor([1])))
    with pytest.raises(NumericsError, match="NaN"):
        reciprocal_ranks(torch.full((1, 3), float("nan")), torch.tensor([0]))


def test_no_rows_and_no_tokens_are_fine() -> None:
    total = ReadoutSums(5)
    total.add(torch.zeros(0, 5))
    assert total.count == 0
    none = ReadoutSums(5, torch.empty(0, dtype=torch.int64))
    none.add(torch.zeros(2, 5))
    assert none.evidence().shape == (0,)
    assert reciprocal_ranks(torch.zeros(2, 5), torch.empty(0, dtype=torch.int64)).shape == (2, 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 60])
def test_reciprocal_ranks_by_position(dtype: torch.dtype, count: int) -> None:
    tokens = torch.arange(count)
    for kind, values in kinds(200, rows=5, seed=9).items():
        logits = values.to(dtype)
        expected = 1 / torch.from_numpy(brute_ranks(logits))[:, tokens].float()
        assert torch.equal(reciprocal_ranks(logits, tokens), expected), kind
