"""Damage of every kind, by seed: what disks, cut transfers and editors do to bytes, and what hands do to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

Mutation = Callable[[bytes, Random], bytes]


def flip_bit(data: bytes, dice: Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]


def flip_many(data: bytes, dice: Random) -> bytes:
    for _ in range(dice.randint(2, 16)):
        data = flip_bit(data, dice)
    return data


def set_byte(data: bytes, dice: Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + dice.choice([b"\0", b"\xff", b" ", b"9", b'"', b"]", b"\n", b"-"]) + data[at + 1 :]


def cut(data: bytes, dice: Random) -> bytes:
    return data[: dice.randrange(len(data))]


def drop_block(data: bytes, dice: Random) -> bytes:
    start, stop = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[stop:]


def zero_block(data: bytes, dice: Random) -> bytes:
    start, stop = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + bytes(stop - start) + data[stop:]


def repeat_block(data: bytes, dice: Random) -> bytes:
    start, stop = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return data[:stop] + data[start:]


def insert_noise(data: bytes, dice: Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.randbytes(dice.randint(1, 64)) + data[at:]


def append_noise(data: bytes, dice: Random) -> bytes:
    return data + dice.randbytes(dice.randint(1, 64))


def edit_digit(data: bytes, dice: Random) -> bytes:
    digits = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return flip_bit(data, dice)
    at = dice.choice(digits)
    return data[:at] + bytes([48 + (data[at] - 48 + dice.randint(1, 9)) % 10]) + data[at + 1 :]


def swap_lines(data: bytes, dice: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return flip_bit(data, dice)
    one, other = dice.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def empty(data: bytes, dice: Random) -> bytes:
    return b""


def another_file(data: bytes, dice: Random) -> bytes:
    return dice.choice(
        [b"{}", b"[]", b"null", b"[" * 50_000, b'{"a": 1e999}', b"\0" * 512, b"%!PS\n", b"PK\3\4"]
    )


def edit_json(data: bytes, dice: Random) -> bytes:
    """Change one value of a JSON file, or of one of its lines, and leave it valid JSON."""
    lines = data.splitlines(keepends=True)
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    at = None if whole is not None or not lines else dice.randrange(len(lines))
    try:
        page = whole if at is None else json.loads(lines[at])
    except (ValueError, RecursionError):
        return flip_bit(data, dice)
    text = json.dumps(_edited(page, dice)).encode()
    return text if at is None else b"".join([*lines[:at], text + b"\n", *lines[at + 1 :]])


def _edited(value: object, dice: Random) -> object:
    if isinstance(value, dict) and value:
        key = dice.choice(sorted(value))
        if dice.random() < 0.15:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: _edited(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        at = dice.randrange(len(value))
        return [*value[:at], _edited(value[at], dice), *value[at + 1 :]]
    return dice.choice(
        [None, True, -1, 0, 10**30, 0.5, 1e308, "", "x", "\ud800", "a\0b", [], {}, [[]], {"a": None}]
    )


MUTATIONS: tuple[Mutation, ...] = (
    flip_bit,
    flip_bit,
    flip_many,
    set_byte,
    cut,
    drop_block,
    zero_block,
    repeat_block,
    insert_noise,
    append_noise,
    edit_digit,
    swap_lines,
    empty,
    another_file,
    edit_json,
    edit_json,
)


def mutate(data: bytes, dice: Random) -> bytes:
    """The data damaged in one way that changes it."""
    for _ in range(100):
        changed = dice.choice(MUTATIONS)(data, dice)
        if changed != data:
            return changed
    return data + b"x"
