"""Records of what a result was computed with, and the first thing in which two of them differ."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reweigh.provenance import environment, first_difference, record_differences, versions

LEAVES = st.none() | st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2)
RECORDS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), LEAVES | inner, max_size=3),
    max_leaves=8,
)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return found


@given(RECORDS, RECORDS)
def test_absent_keys_count_as_none_against_a_flat_twin(one: Any, other: Any) -> None:
    old, new = flat(one), flat(other)
    differing = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    found = first_difference(one, other)
    assert (found is None) == (not differing)
    if found is not None:
        assert differing[0] == found.key or differing[0].startswith(f"{found.key}.")


@given(RECORDS, RECORDS)
def test_a_difference_is_the_same_from_both_sides(one: Any, other: Any) -> None:
    found = first_difference(one, other)
    if found is not None:
        assert first_difference(other, one) == (found.key, found.second, found.first)
        assert first_difference(one, other, ignore={found.key}) != found


def test_both_values_are_named() -> None:
    assert first_difference({"a": {"b": 1}, "z": 0}, {"a": {"b": 2}, "z": 1}) == ("a.b", 1, 2)
    assert first_difference({"a": {"b": 1}}, {}) == ("a.b", 1, None)
    assert first_difference({"a": {}}, {"b": None}) is None
    assert first_difference({"a": {"id": 1}}, {"a": {"id": 2}}, ignore={"a.id"}) is None


def test_a_value_that_is_not_there_is_none_in_words() -> None:
    found = first_difference({"a": "b"}, {})
    assert found is not None
    assert found.words == ("'b'", "none")


@given(RECORDS, RECORDS)
def test_all_differences_are_those_of_a_flat_twin(one: Any, other: Any) -> None:
    """Empty mappings count as nothing, and a mapping against a plain value is one difference."""
    old, new = flat(one), flat(other)
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    found = [each.key for each in record_differences(one, other)]
    assert found == sorted(set(found), key=lambda key: key.split("."))
    assert {key for key in differing if not any(f"{key}.".startswith(f"{each}.") for each in found)} == set()
    assert {each for each in found if not any(f"{key}.".startswith(f"{each}.") for key in differing)} == set()


def test_versions_and_environment_agree() -> None:
    packages = environment()["packages"]
    for name, found in versions().items():
        assert found == (environment()["python"] if name == "python" else packages[name])
