"""Which sequence a forward pass continues: its trail, found on the cache or begun.

Works on the arguments of a pass and the prompt under way; knows no hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reweigh.engines.transformers.arguments import past_length, token_ids
from reweigh.engines.transformers.follow import follow
from reweigh.engines.transformers.prompt import Prompt, visual_layout
from reweigh.engines.transformers.trail import Trail, new_trail
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy

_TRAILS = "_reweigh_trails"


def trail_on(cache: Any, key: int) -> Trail | None:
    """The trail that a decoder left on a cache."""
    trail: Trail | None = None if cache is None else vars(cache).get(_TRAILS, {}).get(key)
    return trail


def leave_trail(cache: Any, key: int, trail: Trail) -> None:
    """Leave a decoder's trail on a cache, whose rows it follows from now on."""
    vars(cache).setdefault(_TRAILS, {})[key] = trail
    follow(cache, trail)


def next_step(prompt: Prompt | None, arguments: Mapping[str, Any], key: int) -> Trail | None:
    """The trail of one more token of a generation under way; ``None`` where anything has to be looked up."""
    ids, cache = arguments.get("input_ids"), arguments.get("past_key_values")
    if prompt is None or prompt.trail is None or not prompt.passes or ids is None or cache is None:
        return None
    trail = prompt.trail
    if ids.shape != (trail.rows, 1) or trail.seen < prompt.end:
        return None
    if trail_on(cache, key) is not trail or past_length(cache, trail.seen) != trail.seen:
        return None
    return trail


def past_columns(prompt: Prompt | None, arguments: Mapping[str, Any], key: int) -> int:
    """Columns before this pass; amid ``generate`` the trail knows them."""
    cache = arguments.get("past_key_values")
    known = prompt.trail if prompt is not None and prompt.passes else None
    if known is not None and trail_on(cache, key) is known:
        return past_length(cache, known.seen)
    return past_length(cache)


def find_trail(
    anatomy: Anatomy,
    prompt: Prompt | None,
    arguments: Mapping[str, Any],
    key: int,
    *,
    past: int,
    rows: int,
    length: int,
) -> Trail:
    """The trail this pass continues or begins, with the visual columns of its prompt noted."""
    trail = _continued(prompt, arguments, key, past, length)
    if prompt is not None and prompt.trail is None:
        trail = trail or new_trail(len(prompt.columns))
        trail.extend(prompt.start, prompt.columns, prompt.patches)
        trail.prompt, prompt.trail = prompt.number, trail
    elif trail is None or (length > 1 and (prompt is None or trail.prompt != prompt.number)):
        # a pass outside generate, or beside its prompt, such as the image-free branch of guidance
        trail = trail or new_trail(rows)
        trail.extend(past, *visual_layout(anatomy, token_ids(arguments), arguments))
    return trail


def _continued(
    prompt: Prompt | None, arguments: Mapping[str, Any], key: int, past: int, length: int
) -> Trail | None:
    """The trail of the columns before this pass, ``None`` if there are none."""
    cache = arguments.get("past_key_values")
    if cache is None:  # without a cache each step of generate repeats its prompt
        again = prompt is not None and prompt.trail is not None and length >= prompt.end
        return prompt.trail if prompt is not None and again else None
    if past == 0:
        return None
    trail = trail_on(cache, key)
    if trail is None or past > trail.seen:
        raise UnsupportedError(
            f"the cache holds {past} positions, {past if trail is None else past - trail.seen} of which were "
            "not seen by this session, so the evidence of an image among them is unknown",
            hint="fill the cache inside the same session's `with` block, or start without a cache",
        )
    trail.rewind(past)
    return trail
