"""HALC (Chen et al., ICML 2024): object words are looked up in the picture, and written again from crops around them.

f_j - weight f_i and f_i - weight f_j, for the pairs of fields of view that differ most, give a word's new first tokens.

It is a decoding loop inside ``generate``. DoLa chooses tokens greedily. When a word that names a thing ends, a detector
looks for it; four fields of view around the box each predict its first token, contrasts of these give candidates, and a
matcher ranks the texts so far by the whole picture. The best continue as beams. A word that the detector does not find,
and that is chosen again, is deleted from the answer, unless the detector is an oracle (``is_oracle``), which would delete
exactly the hallucinations.

What differs from the official program: ``is_entity`` decides which words are looked up, instead of a tagger, two word lists
(which name objects of COCO) and a random skip of 30%; a word is looked up once at each place and texts are ranked
whenever a word was looked up; a matcher's weights must exist, where the official one has a random text tower; crops are
read in one prefill instead of token by token; a deleted word is read until the answer ends; equal texts continue once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from reweigh.rivals.dola import DoLa
from reweigh.rivals.halc.grounding import OWN, Detector, Matcher, PictureGain, load_detector, load_matcher
from reweigh.rivals.halc.pictures import PictureSession, pictures_of
from reweigh.rivals.halc.walk import FIELDS, Beam, Walk, Words, entity_test, may_be_entity
from reweigh.rivals.tools import (
    Anatomy,
    InputError,
    Pass,
    StreamEditor,
    after_prompts,
    edited_beside,
    end_tokens,
    in_range,
    prefill,
    prompt_pass,
    require_processor,
    suspended,
    tokenizer_of,
)


class HALC(StreamEditor):
    """Words that name things are grounded, contrasted and ranked while the answer is written.

    Args:
        detect: A function from a picture and a word to boxes; or a GroundingDINO checkpoint; or a file of annotated
            boxes (.jsonl), an oracle.
        match: A function from a picture and texts to scores; or a BLIP image-text retrieval checkpoint; or "own", what the
            picture adds to the text's likelihood by the model itself.
        is_entity: Whether a word is looked up, or the words that are, or a file of them; by default every word except
            function words.
        beams: Texts that continue; 3 is the program's default, 1 the README's.
        candidates: First tokens tried for each word, an even number.
        growth: How much a field of view is larger than the one before.
        weight: Weight of the field that is subtracted.
        template: Prompt template, for processors without a chat template.
    """

    title = "HALC"
    grid = (("weight", (0.05, 0.1, 0.2)), ("growth", (0.3, 0.6)))
    session = PictureSession
    call_options = ("pictures",)

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
        weight: float = 0.05,
        template: str | None = None,
    ) -> None:
        super().__init__(anatomy, processor)
        require_processor("halc", processor, "HALC reads words and crops of a picture")
        if candidates % 2 or not 2 <= candidates <= FIELDS * (FIELDS - 1):
            raise InputError(
                f"{candidates} candidates cannot be made of {FIELDS} fields of view",
                hint="use an even number, two for each of up to 6 pairs",
            )
        self.detect = load_detector(detect) if isinstance(detect, str) else detect
        if match == OWN:
            self.match: Matcher = PictureGain(anatomy, processor, template)
        else:
            self.match = load_matcher(match) if isinstance(match, str) else match
        self.is_entity = entity_test(is_entity)
        self.beams, self.candidates = int(in_range("beams", beams, 1)), candidates
        self.growth = in_range("growth", growth, 0)
        self.weight = in_range("weight", weight, 0)
        self.deletes = not getattr(self.detect, "is_oracle", False)
        self.template = template
        self.dola = DoLa(anatomy, layers=range(0, len(anatomy.blocks), 2))
        self.state_layers = sorted(self.dola.layers)
        self.words = Words(tokenizer_of(processor), end_tokens(anatomy.language_model))

    def before(self, forward: Pass) -> None:
        """Make room for the states that DoLa reads."""
        forward.prompt.scratch = {}

    def edit_state(self, layer: int, states: Tensor, forward: Pass) -> None:
        """Note the states that DoLa reads."""
        forward.prompt.scratch[layer] = states[:, -1]

    def scores(self, logits: Tensor, *, has_image: bool = True) -> Tensor:
        """Return the next-token scores (B, V) of the latest pass: DoLa's, or without an image the logits themselves."""
        if not has_image:
            return logits[:, -1].float()
        return self.dola.read_and_combine(logits[:, -1], prompt_pass(self.anatomy).prompt.scratch)

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
        branch, raw = prefill(self.anatomy, model, input_ids, model_kwargs, "HALC rolls words back")
        forward = prompt_pass(self.anatomy)
        scores, plain, answers = self.scores(raw), self.scores(raw, has_image=False), []
        with suspended(self.anatomy.model), edited_beside(forward):
            for row, picture in enumerate(pictures_of(forward)):
                own = branch.copy(torch.tensor([row], device=input_ids.device))
                begin = Beam(own, (), plain[row] if picture is None else scores[row])
                walk = Walk(
                    self,
                    forward.prompt.inputs,
                    row,
                    picture,
                    input_ids[row],
                    logits_processor,
                    stopping_criteria,
                )
                best = walk.run(begin)
                answers.append(self.words.without(best.tokens, best.deleted))
        sequences = after_prompts(input_ids, answers, generation_config)
        if generation_config.return_dict_in_generate:
            return GenerateDecoderOnlyOutput(sequences=sequences)
        return sequences
