"""Packed conversations are learned exactly as if each stood alone behind its image."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reweigh.world.scenes import scenes
from reweigh.world.vocabulary import mentions
from tools.training.conversations import AFTER, BEFORE, Mix, pack, turns
from tools.training.model import Shape, llava_config
from tools.training.tokenizer import train_tokenizer

VISUAL = 64


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(count=60, size=600)


@pytest.fixture(scope="module")
def language(tokenizer: Any) -> Any:
    from transformers import LlavaForConditionalGeneration

    torch.manual_seed(0)
    shape = Shape(width=64, vision_blocks=1, vision_mlp=64, blocks=2, mlp=64, heads=2)
    return LlavaForConditionalGeneration(llava_config(shape, len(tokenizer), 3)).eval()


def test_each_conversation_gets_the_logits_it_gets_alone(tokenizer: Any, language: Any) -> None:
    batch = list(scenes("train", 3))
    mix = Mix(details=2, briefs=1, asked=2)
    packed = pack(batch, tokenizer, mix, VISUAL, seed=1)
    inner = language.model.language_model
    visual = torch.randn(len(batch), VISUAL, 64, generator=torch.Generator().manual_seed(1))
    prefix = len(packed.before) + VISUAL
    with torch.inference_mode():
        words, before = inner.embed_tokens(packed.ids), inner.embed_tokens(packed.before).expand(3, -1, -1)
        out = inner(
            inputs_embeds=torch.cat([before, visual, words], dim=1),
            attention_mask=packed.mask,
            position_ids=packed.positions,
        ).last_hidden_state
        for row, scene in enumerate(batch):
            at = 0
            for prompt, said, _ in turns(scene, mix, 1):
                ids = tokenizer(f"{AFTER}{prompt} ASSISTANT: {said}</s>", add_special_tokens=False).input_ids
                alone = torch.cat(
                    [before[:1], visual[row : row + 1], inner.embed_tokens(torch.tensor([ids]))], dim=1
                )
                wanted = inner(inputs_embeds=alone).last_hidden_state[0, prefix:]
                got = out[row, prefix + at : prefix + at + len(ids)]
                assert packed.ids[row, at : at + len(ids)].tolist() == ids
                torch.testing.assert_close(got, wanted, atol=2e-5, rtol=1e-4)
                at += len(ids)


def test_only_answers_are_learned_and_from_the_token_before(tokenizer: Any) -> None:
    batch = list(scenes("train", 2))
    packed = pack(batch, tokenizer, Mix(), VISUAL, seed=1)
    prefix = len(packed.before) + VISUAL
    for row, scene in enumerate(batch):
        learned = packed.ids[row][packed.weights[row] > 0].tolist()
        told = [f" {said}</s>" for _, said, _ in turns(scene, Mix(), 1)]
        assert learned == [t for text in told for t in tokenizer(text, add_special_tokens=False).input_ids]
        for at in packed.weights[row].nonzero().flatten().tolist():
            assert packed.previous[row, at] == prefix + at - 1


def test_the_text_in_front_is_what_the_chat_template_writes(tokenizer: Any) -> None:
    content = [{"type": "image"}, {"type": "text", "text": "Describe this image."}]
    written = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}, {"role": "assistant", "content": "A farm."}], tokenize=False
    )
    assert written == f"{BEFORE}<image>{AFTER}Describe this image. ASSISTANT: A farm.</s>"


def test_what_was_named_before_is_kept_from_being_named_again(tokenizer: Any) -> None:
    batch = list(scenes("train", 3))
    mix = Mix(details=1, briefs=0, asked=1)
    packed = pack(batch, tokenizer, mix, VISUAL, seed=1)
    for row, scene in enumerate(batch):
        said = turns(scene, mix, 1)[0][1]
        named = [m[2] for m in mentions(said)]
        first = [tokenizer(f" {word}", add_special_tokens=False).input_ids[0] for word in named]
        wanted = [(first[k], earlier) for k in range(len(first)) for earlier in first[:k]]
        mine = packed.again[packed.again[:, 0] == row]
        assert [(int(packed.ids[row, at]), int(token)) for _, at, token in mine] == wanted


def test_object_names_weigh_what_the_mix_says(tokenizer: Any) -> None:
    batch = list(scenes("train", 1))
    mix = Mix(details=1, briefs=0, asked=1, object_weight=7.0)
    packed = pack(batch, tokenizer, mix, VISUAL, seed=1)
    said = turns(batch[0], mix, 1)[0][1]
    names = "".join(f" {m[2]}" for m in mentions(said))
    assert tokenizer.decode(packed.ids[0][packed.weights[0] == 7.0]) == names
