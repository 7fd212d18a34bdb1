"""From a trained folder to a LLaVA checkpoint that every command takes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from tools.training.photographs.lesson import CaptionLesson
from tools.training.photographs.model import END, IMAGE, START
from tools.training.photographs.prepare import tower

TEMPLATE = (
    "{% for message in messages %}"
    f"{START}{{{{ message['role'] }}}}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    f"{{% if part['type'] == 'image' %}}{IMAGE}{{% elif part['type'] == 'text' %}}{{{{ part['text'] }}}}{{% endif %}}"
    "{% endfor %}{% endif %}"
    f"{END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
)


def export(lesson: CaptionLesson, out: Path) -> Path:
    """Write model and processor to ``out``, which appears only when it is complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        folder = Path(scratch) / "model"
        assembled(lesson).save_pretrained(folder)
        processor_of(lesson).save_pretrained(folder)
        folder.rename(out)
    return out


def processor_of(lesson: CaptionLesson) -> Any:
    """The processor: CLIP's pictures at the recipe's size, the language model's tokenizer, the conversation."""
    from transformers import LlavaProcessor

    vision, pictures = tower(lesson.prepared.parts)
    tokenizer = lesson.tokenizer
    tokenizer.image_token = IMAGE
    tokenizer.padding_side = "left"
    tokenizer.chat_template = TEMPLATE
    if tokenizer.pad_token is None:
        tokenizer.pad_token = END
    return LlavaProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=vision.config.patch_size,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=IMAGE,
        chat_template=TEMPLATE,
    )


@torch.no_grad()
def assembled(lesson: CaptionLesson) -> Any:
    """The whole model: tower with interpolated positions, connector, language model with its updates merged."""
    from transformers import CLIPVisionConfig, CLIPVisionModel, LlavaConfig, LlavaForConditionalGeneration

    parts, tokenizer = lesson.prepared.parts, lesson.tokenizer
    vision, _ = tower(parts)
    language = lesson.module.merge()
    image, end = tokenizer.convert_tokens_to_ids([IMAGE, END])
    resized = CLIPVisionModel(CLIPVisionConfig(**(vision.config.to_dict() | {"image_size": parts.size})))
    name = next(key for key in vision.state_dict() if key.endswith("position_embedding.weight"))
    embeddings = vision.get_submodule(name.removesuffix(".position_embedding.weight"))
    patches = (parts.size // vision.config.patch_size) ** 2
    blank = torch.zeros(1, patches + 1, vision.config.hidden_size)
    positions = embeddings.interpolate_pos_encoding(blank, parts.size, parts.size)[0]
    resized.load_state_dict(vision.state_dict() | {name: positions})
    config = LlavaConfig(
        vision_config=resized.config,
        text_config=language.config,
        image_token_index=image,
        image_seq_length=patches,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        tie_word_embeddings=language.config.tie_word_embeddings,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end,
    )
    model = LlavaForConditionalGeneration(config).eval()
    model.model.vision_tower.load_state_dict(resized.state_dict())
    model.model.language_model.load_state_dict(language.model.state_dict())
    model.lm_head.load_state_dict(language.lm_head.state_dict())
    first, last = lesson.module.connector[0], lesson.module.connector[2]
    model.model.multi_modal_projector.linear_1.load_state_dict(first.state_dict())
    model.model.multi_modal_projector.linear_2.load_state_dict(last.state_dict())
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = end, config.pad_token_id
    return model
