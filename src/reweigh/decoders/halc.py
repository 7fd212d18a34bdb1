"""HALC (Chen et al., ICML 2024): object words are looked up in the picture, and written again from crops around them.

A loop of its own inside ``generate``. Tokens are chosen greedily by DoLa. When a word ends that names a thing, a detector
grounds it; four fields of view around the box each predict its first token, contrasts of the fields that differ most
give candidates, and a matcher ranks the texts so far by the whole picture. The best go on as beams.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from reweigh.decoders.dola import DoLa
from reweigh.decoders.entities import may_be_entity
from reweigh.decoders.fields import CENTRE, Box, contrasts, fields, survivors
from reweigh.decoders.grounding import Detector, Matcher, load_detector, load_matcher
from reweigh.decoders.words import Words, bare
from reweigh.engines.base import Decoder, Request, UpcomingPass, in_range
from reweigh.engines.context import opened_on, paused
from reweigh.engines.transformers.branch import BranchState, Runner
from reweigh.engines.transformers.inputs import rows_of
from reweigh.engines.transformers.pictures import (
    PictureSession,
    crop,
    picture_request,
    pictures_of,
    with_pictures,
)
from reweigh.engines.transformers.session import end_tokens
from reweigh.engines.transformers.stream import StreamEdit
from reweigh.engines.transformers.tap import Tap
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy

if TYPE_CHECKING:
    from PIL.Image import Image

HANDLED = 3
"""A word with more boxes than this is left as it is."""

DELETABLE = 8
"""Tokens that an answer must have before an undetected word is deleted."""

OFFICIAL_EXEMPT = frozenset(
    """
    Birthday background bench birds boat bus captures cat cell center detail feature features group her horse image left
    manner mirror red right s scene side stack teddy toaster toilet view white
    """.split()  # noqa: SIM905
)
"""Words that the official program never looks up, COCO objects among them."""

OFFICIAL_ALWAYS = frozenset(
    ["bottle", "cars", "microwave", "orange", "oven", "puppy", "sink", "table", "toaster", "toothbrush"]
)
"""Words that it always looks up."""


class _Local(threading.local):
    """The prompt's pass, and the states that DoLa reads, of this thread."""

    upcoming: UpcomingPass | None = None
    early: dict[int, Tensor] = {}  # noqa: RUF012


@dataclass(frozen=True)
class Beam:
    """A text under way: its cache, tokens, next-token scores (V,), word starts looked up, and those to be deleted."""

    state: BranchState
    tokens: tuple[int, ...]
    scores: Tensor
    examined: frozenset[int] = frozenset()
    deleted: frozenset[int] = frozenset()
    done: bool = False


class HALC(Decoder):
    """Words that name things are grounded, contrasted and ranked while the answer is written.

    Args:
        detect: From a picture and a word to boxes, or a GroundingDINO or OWLv2 checkpoint.
        match: From a picture and texts to scores, or a BLIP image-text retrieval checkpoint.
        is_entity: Whether a word is looked up; every word but function words if not given, the official one asks a
            tagger for nouns.
        beams: Texts that go on; 3 is the program's default, 1 the README's.
        candidates: First tokens tried for each word, an even number.
        growth: How much a field of view is larger than the one before.
        count: Fields of view.
        weight: Weight of the field that is subtracted.
        dola: Choose tokens by DoLa, as the official program does; plain greedy otherwise.
        official_lists: Never look up the program's 31 exempt words, always its 10 others.
        skip_rate: Share of words that are skipped at random; 0.3 in the official program.
        delete_undetected: Delete a word that the detector does not find from the answer, as the official program does;
            this can lower hallucination figures by itself.
        seed: Seed of what is skipped.
        template: Prompt template, for processors without a chat template.
    """

    title = "HALC"

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        detect: Detector | str,
        match: Matcher | str,
        is_entity: Callable[[str], bool] = may_be_entity,
        beams: int = 3,
        candidates: int = 4,
        growth: float = 0.6,
        count: int = 4,
        weight: float = 0.05,
        dola: bool = True,
        official_lists: bool = False,
        skip_rate: float = 0.0,
        delete_undetected: bool = False,
        seed: int = 0,
        template: str | None = None,
    ) -> None:
        super().__init__(anatomy, processor)
        if processor is None:
            raise InputError(
                "HALC reads words and crops of a picture", hint='decoder("halc", model, processor)'
            )
        if candidates < 2 or candidates % 2 or candidates > count * (count - 1):
            raise InputError(
                f"{candidates} candidates cannot be made of {count} fields",
                hint="an even number, two for each pair",
            )
        self.detect = load_detector(detect) if isinstance(detect, str) else detect
        self.match = load_matcher(match) if isinstance(match, str) else match
        self.is_entity = is_entity
        self.beams, self.candidates = int(in_range("beams", beams, 1)), candidates
        self.growth, self.count = in_range("growth", growth, 0), int(in_range("count", count, 2))
        self.weight, self.skip_rate = in_range("weight", weight, 0), in_range("skip_rate", skip_rate, 0, 1)
        self.exempt: Collection[str] = OFFICIAL_EXEMPT if official_lists else ()
        self.always: Collection[str] = OFFICIAL_ALWAYS if official_lists else ()
        self.delete_undetected, self.seed, self.template = delete_undetected, seed, template
        self.dola = DoLa(anatomy, layers=range(0, len(anatomy.blocks), 2)) if dola else None
        self.words = Words(getattr(processor, "tokenizer", processor), end_tokens(anatomy.speaker))
        self.runner, self.stream, self._local = Runner(anatomy), StreamEdit(self), _Local()

    def request(self, outer: Request | None = None, *, pictures: Any = None, **options: Any) -> Request:
        """A request, with the pictures of its prompts' rows if they are known."""
        super().request(outer, **options)
        return picture_request(self, outer, pictures)

    def attach(self, model: Any, processor: Any) -> PictureSession:
        """Tie this decoder to a model."""
        return PictureSession(model, processor, self)

    def engage(self, tap: Tap) -> Callable[[], None]:
        """Read the layers of DoLa."""
        if self.dola is None:
            return lambda: None
        return self.stream.install(states=dict.fromkeys(sorted(self.dola.layers), self._note))

    def _note(self, layer: int, states: Tensor) -> None:
        self._local.early[layer] = states[:, -1]

    def before(self, upcoming: UpcomingPass) -> None:
        """Note the prompt, and where its images lie."""
        self._local.upcoming, self._local.early = upcoming, {}

    def scores(self, logits: Tensor, *, has_image: bool = True) -> Tensor:
        """Next-token scores (B, V) of the pass that has just run: DoLa's, or its own logits."""
        final, dola = logits[:, -1].float(), self.dola
        if dola is None or not has_image:
            return final
        streams = (self._local.early[index - 1] for index in dola.indices)
        early = [dola.lens.read(one, norm=False).float().to(final.device) for one in streams]
        return dola.combine(final, torch.stack(early))

    def loop(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """The ``custom_generate`` of transformers."""
        if generation_config.num_beams > 1 or generation_config.do_sample:
            raise InputError("HALC has beams of its own and does not sample", hint="use its option beams")
        state, raw = self.runner.prefill(model, input_ids, model_kwargs, "HALC rolls words back")
        upcoming, opened = self._local.upcoming, opened_on(self.anatomy.model)
        if upcoming is None or opened is None:
            raise InputError("generate was called outside the decoder's `with` block")
        has = [bool(row) for row in upcoming.columns]
        pictures: list[Image | None] = [None] * len(has)
        if any(has):
            pictures = pictures_of(opened.request, self.anatomy, self.processor, upcoming.inputs, has)
        scores, plain = self.scores(raw), raw[:, -1].float()
        answers = []
        with paused(self.anatomy.model), self.stream.while_paused():
            for row, picture in enumerate(pictures):
                chosen = torch.tensor([row], device=input_ids.device)
                first = scores[row] if picture is not None else plain[row]
                begin = Beam(self.runner.rows(state, chosen), (), first)
                walk = _Walk(
                    self, upcoming, row, picture, input_ids[row], logits_processor, stopping_criteria
                )
                best = walk.run(begin)
                answers.append(self.words.without(best.tokens, best.deleted))
        self._local.upcoming, self._local.early = None, {}
        return _output(answers, input_ids, generation_config)


class _Walk:
    """The answer to one prompt."""

    def __init__(
        self,
        decoder: HALC,
        upcoming: UpcomingPass,
        row: int,
        picture: Image | None,
        prompt: Tensor,
        processors: Any,
        criteria: Any,
    ) -> None:
        self.decoder = decoder
        self.inputs, self.row, self.picture, self.prompt = upcoming.inputs, row, picture, prompt
        self.processors, self.criteria = processors, criteria
        self.draw = random.Random(decoder.seed)
        self._boxes: dict[str, Sequence[Box]] = {}

    def run(self, begin: Beam) -> Beam:
        """Write until every beam has ended; the best one."""
        beams = [begin]
        while not all(beam.done for beam in beams):
            options: list[Beam] = []
            ranked = False
            for beam in beams:
                token = None if beam.done else self.choose(beam)
                again = None if token is None else self.examine(beam, token)
                ranked = ranked or again is not None
                options += (
                    again if again is not None else [beam if token is None else self.extend(beam, token)]
                )
            beams = self.rank(options) if ranked else options
        return beams[0]

    def choose(self, beam: Beam) -> int:
        """The next token, greedily, after the caller's logits processors."""
        return int(self.processors(self._whole(beam.tokens), beam.scores[None])[0].argmax())

    def extend(self, beam: Beam, token: int) -> Beam:
        """A beam with one more token."""
        tokens = (*beam.tokens, token)
        if bool(self.criteria(self._whole(tokens), None).all()):
            return replace(beam, tokens=tokens, done=True)
        given = torch.tensor([[token]], device=self.prompt.device)
        logits = self.decoder.runner.step(beam.state, given)
        has_image = self.picture is not None
        return replace(beam, tokens=tokens, scores=self.decoder.scores(logits, has_image=has_image)[0])

    def examine(self, beam: Beam, token: int) -> list[Beam] | None:
        """The beams that take the last word's place, if ``token`` ends a word that is to be looked up."""
        words, tokens = self.decoder.words, beam.tokens
        if self.picture is None or not tokens or not words.begins(token):
            return None
        start = words.last_start(tokens)
        word = bare(words.text(tokens[start:]))
        if start in beam.examined or not self.looked_up(word):
            return None
        boxes = self.detected(word)
        if len(boxes) > HANDLED:
            return None
        box = min(boxes, key=lambda one: (one[2] - one[0]) * (one[3] - one[1])) if boxes else CENTRE
        examined, found = beam.examined | {start}, []
        for first in self.first_tokens(tokens[:start], box):
            gone = self.decoder.delete_undetected and not boxes and self.deletable(word, first, start)
            state = self.decoder.runner.rows(beam.state, torch.tensor([0], device=self.prompt.device))
            state.crop(len(tokens) - start)
            back = replace(beam, state=state, tokens=tokens[:start], examined=examined)
            found.append(
                self.extend(replace(back, deleted=beam.deleted | {start} if gone else beam.deleted), first)
            )
        return found

    def looked_up(self, word: str) -> bool:
        """Whether a word is looked up: the list of words that always are beats everything else."""
        if word in self.decoder.always:
            return True
        plain = bool(word) and "." not in word and "," not in word and word not in self.decoder.exempt
        skipped = self.draw.random() < self.decoder.skip_rate
        return plain and not skipped and self.decoder.is_entity(word)

    def detected(self, word: str) -> Sequence[Box]:
        """The boxes of a word, asked for once."""
        if word not in self._boxes:
            self._boxes[word] = list(self.decoder.detect(self.picture, word))
        return self._boxes[word]

    def first_tokens(self, before: Sequence[int], box: Sequence[float]) -> list[int]:
        """Candidates for a word's first token: one prefill of the answer before it with four crops of the picture."""
        decoder, picture = self.decoder, self.picture
        if picture is None:
            return []
        parts = [crop(picture, field) for field in fields(box, decoder.growth, decoder.count)]
        ids = [*rows_of(self.inputs)[self.row], *before]
        anatomy, rows = decoder.anatomy, [(self.row, ids)] * len(parts)
        inputs = with_pictures(
            anatomy, decoder.processor, self.inputs, rows, parts, template=decoder.template
        )
        views = decoder.runner.start(inputs, 0)[1][:, -1]
        scores = contrasts(views, decoder.candidates // 2, decoder.weight)
        scores[:, list(anatomy.image_tokens)] = float(
            "-inf"
        )  # a placeholder in the answer stands for no picture
        return list(dict.fromkeys(scores.argmax(dim=-1).tolist()))

    def deletable(self, word: str, first: int, start: int) -> bool:
        """Whether an undetected word was written again and is far enough into the answer."""
        new = bare(self.decoder.words.text([first]))
        same = bool(new) and (new in word or word in new)
        return same and start + 1 >= DELETABLE and word not in self.decoder.exempt

    def rank(self, options: Sequence[Beam]) -> list[Beam]:
        """The beams whose texts match the whole picture best."""
        texts = [self.decoder.words.text(beam.tokens) for beam in options]
        scores = [float(score) for score in self.decoder.match(self.picture, texts)]
        return [options[place] for place in survivors(scores, texts, self.decoder.beams)]

    def _whole(self, tokens: Sequence[int]) -> Tensor:
        return torch.cat(
            [self.prompt, torch.tensor(tokens, dtype=self.prompt.dtype, device=self.prompt.device)]
        )[None]


def _output(answers: Sequence[Sequence[int]], prompts: Tensor, config: Any) -> Any:
    """The answers behind their prompts, padded to one length."""
    pad = config._pad_token_tensor
    if pad is None:
        pad = config._eos_token_tensor[0] if config._eos_token_tensor is not None else -1
    made = prompts.new_full((len(answers), max(map(len, answers))), int(pad))
    for row, answer in enumerate(answers):
        made[row, : len(answer)] = torch.tensor(answer, dtype=made.dtype)
    sequences = torch.cat([prompts, made], dim=1)
    return GenerateDecoderOnlyOutput(sequences=sequences) if config.return_dict_in_generate else sequences
