"""HALC (Chen et al., ICML 2024): object words are looked up in the picture, and written again from crops around them.

A loop of its own inside ``generate``. Tokens are chosen greedily by DoLa. When a word ends that names a thing, a detector
grounds it; four fields of view around the box each predict its first token, contrasts of the fields that differ most
give candidates, and a matcher ranks the texts so far by the whole picture. The best go on as beams.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from reweigh.engines.transformers.answers import behind_prompts
from reweigh.engines.transformers.session import end_tokens
from reweigh.engines.transformers.tap import Tap
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.families.processor_parts import tokenizer_of
from reweigh.rivals.dola import DoLa
from reweigh.rivals.halc.grounding import Detector, Matcher, load_detector, load_matcher
from reweigh.rivals.halc.walk import Beam, Walk
from reweigh.rivals.tools.branch import Runner
from reweigh.rivals.tools.entities import entity_test, may_be_entity, word_list
from reweigh.rivals.tools.gain import OWN, PictureGain
from reweigh.rivals.tools.pictures import PictureSession, picture_request, pictures_of
from reweigh.rivals.tools.stream import StreamEdit
from reweigh.rivals.tools.words import LookUp, Words, bare
from reweigh.runtime.context import opened_on, paused
from reweigh.runtime.decoder import Decoder, Request, UpcomingPass, in_range

if TYPE_CHECKING:
    from PIL.Image import Image


class _Local(threading.local):
    """The prompt's pass, and the states that DoLa reads, of this thread."""

    upcoming: UpcomingPass | None = None
    early: dict[int, Tensor] = {}  # noqa: RUF012


class HALC(Decoder):
    """Words that name things are grounded, contrasted and ranked while the answer is written.

    Args:
        detect: From a picture and a word to boxes; or a GroundingDINO or OWLv2 checkpoint; or a file of annotated
            boxes (.jsonl), an oracle.
        match: From a picture and texts to scores; or a BLIP image-text retrieval checkpoint; or "own", what the picture
            adds to the text's likelihood by the model itself.
        is_entity: Whether a word is looked up, or the words that are, or a file of them; every word but function words
            if not given, the official one asks a tagger for nouns.
        beams: Texts that go on; 3 is the program's default, 1 the README's.
        candidates: First tokens tried for each word, an even number.
        growth: How much a field of view is larger than the one before.
        count: Fields of view.
        weight: Weight of the field that is subtracted.
        dola: Choose tokens by DoLa, as the official program does; plain greedy otherwise.
        exempt: Words, or a file of them, that are never looked up; the official program has a list of 31.
        always: Words, or a file of them, that always are; the official program has a list of 10.
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
        is_entity: Callable[[str], bool] | Sequence[str] | str | Path = may_be_entity,
        beams: int = 3,
        candidates: int = 4,
        growth: float = 0.6,
        count: int = 4,
        weight: float = 0.05,
        dola: bool = True,
        exempt: Sequence[str] | str | Path = (),
        always: Sequence[str] | str | Path = (),
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
        self.match = _matcher(self, match, template)
        never, ever = (
            frozenset(map(bare, word_list(name, words)))
            for name, words in (("exempt", exempt), ("always", always))
        )
        self.look_up = LookUp(entity_test(is_entity), never, ever, in_range("skip_rate", skip_rate, 0, 1))
        self.beams, self.candidates = int(in_range("beams", beams, 1)), candidates
        self.growth, self.count = in_range("growth", growth, 0), int(in_range("count", count, 2))
        self.weight = in_range("weight", weight, 0)
        self.delete_undetected, self.seed, self.template = delete_undetected, seed, template
        self.dola = DoLa(anatomy, layers=range(0, len(anatomy.blocks), 2)) if dola else None
        self.words = Words(tokenizer_of(processor), end_tokens(anatomy.speaker))
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
        if self.dola is None or not has_image:
            return logits[:, -1].float()
        return self.dola.read_and_combine(logits[:, -1], self._local.early)

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
        try:
            answers = self._answers(model, input_ids, logits_processor, stopping_criteria, model_kwargs)
        finally:
            self._local.upcoming, self._local.early = None, {}
        sequences = behind_prompts(input_ids, answers, generation_config)
        if generation_config.return_dict_in_generate:
            return GenerateDecoderOnlyOutput(sequences=sequences)
        return sequences

    def _answers(
        self, model: Any, input_ids: Tensor, processors: Any, criteria: Any, kwargs: dict[str, Any]
    ) -> list[list[int]]:
        """The tokens of each row's answer."""
        state, raw = self.runner.prefill(model, input_ids, kwargs, "HALC rolls words back")
        upcoming, opened = self._local.upcoming, opened_on(self.anatomy.model)
        if upcoming is None or upcoming.trail is None or opened is None:
            raise InputError("generate was called outside the decoder's `with` block")
        pictures: list[Image | None] = [None] * len(upcoming.columns)
        if any(upcoming.columns):
            shown = self.anatomy, self.processor, upcoming.inputs, upcoming.trail
            pictures = pictures_of(opened.request, *shown)
        scores, plain = self.scores(raw), raw[:, -1].float()
        answers = []
        with paused(self.anatomy.model), self.stream.while_paused():
            for row, picture in enumerate(pictures):
                own = self.runner.rows(state, torch.tensor([row], device=input_ids.device))
                begin = Beam(own, (), scores[row] if picture is not None else plain[row])
                walk = Walk(self, upcoming.inputs, row, picture, input_ids[row], processors, criteria)
                best = walk.run(begin)
                answers.append(self.words.without(best.tokens, best.deleted))
        return answers


def _matcher(decoder: HALC, given: Matcher | str, template: str | None) -> Matcher:
    if given == OWN:
        return PictureGain(decoder.anatomy, decoder.processor, template)
    return load_matcher(given) if isinstance(given, str) else given
