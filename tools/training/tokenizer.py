"""The byte-pair tokenizer of the embedded model: trained on the world's own text, with a chat template.

Byte-level, so any text can be encoded; frequent words are one piece, rarer ones (some object names too) are several.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import SIZE, scenes
from tools.training.grammar import BRIEF_PROMPTS, DETAIL_PROMPTS, answer, brief, describe, question
from tools.training.labels import PATCHES
from tools.training.lexicon import WORDS
from tools.training.model import MEAN, STD

VOCABULARY = 1280
PAD, BOS, EOS, IMAGE = "<pad>", "<s>", "</s>", "<image>"

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}USER: {% elif message['role'] == 'assistant' %} ASSISTANT: "
    "{% else %}{% endif %}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% elif message['role'] != 'user' %} {% endif %}"
    "{% endfor %}{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
"""The conversation format of LLaVA-1.5: USER, ASSISTANT, the image before the question."""


def corpus(count: int) -> Iterator[str]:
    """Text to learn the pieces from: descriptions, questions, and everyday words the world does not need."""
    prompts = DETAIL_PROMPTS + BRIEF_PROMPTS
    for index, scene in enumerate(scenes("train", count, seed=7)):
        yield f"USER: {prompts[index % len(prompts)]} ASSISTANT: {describe(scene).text} {brief(scene).text}"
        name = tuple(CATALOGUE)[index % len(CATALOGUE)]
        yield f"{question(name)} {answer(index % 2 == 0)}"
    for _ in range(count // 22):
        yield " ".join(WORDS)


def train_tokenizer(count: int = 6000, size: int = VOCABULARY) -> Any:
    """Learn the pieces and wrap them as a fast tokenizer of transformers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, BOS, EOS, IMAGE],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces.train_from_iterator(corpus(count), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        extra_special_tokens={"image_token": IMAGE},
        chat_template=TEMPLATE,
        padding_side="left",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


def processor(tokenizer: Any) -> Any:
    """The LLaVA processor: images to 112 pixels, one ``<image>`` to 64 visual tokens."""
    from transformers import CLIPImageProcessorPil, LlavaProcessor

    images = CLIPImageProcessorPil(
        do_resize=True,
        size={"height": SIZE, "width": SIZE},
        do_center_crop=False,
        image_mean=[MEAN] * 3,
        image_std=[STD] * 3,
    )
    return LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=SIZE // PATCHES,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )


def save_processor(folder: Path) -> None:
    """Train the tokenizer and write it with the image settings."""
    processor(train_tokenizer()).save_pretrained(folder)
