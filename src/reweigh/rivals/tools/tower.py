"""Vision towers with a class token, and what a language model reads of features that were chosen from one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy


def class_token_tower(anatomy: Anatomy) -> Any:
    """The vision tower, if it has a class token and its patches become image tokens one by one."""
    name = type(anatomy.model).__name__
    body = getattr(anatomy.model, "model", anatomy.model)
    parts = [getattr(body, part, None) for part in ("vision_tower", "vision_model", "visual")]
    tower = next((part for part in parts if isinstance(part, nn.Module)), nn.Module())
    if not {key.rpartition(".")[2] for key, _ in tower.named_parameters()} & {"class_embedding", "cls_token"}:
        raise UnsupportedError(
            f"the vision tower of {name} has no class token whose attention could be read",
            hint="LLaVA-1.5, LLaVA-NeXT and InstructBLIP have one",
        )
    if anatomy.family.name not in ("llava", "llava_next", "instructblip"):
        raise UnsupportedError(
            f"{name} does not make one image token of each patch, so chosen patches cannot be put in the image's place",
            hint="use LLaVA-1.5, LLaVA-NeXT and InstructBLIP",
        )
    if not isinstance(getattr(anatomy.config, "vision_feature_layer", -1), int):
        raise UnsupportedError(
            f"{name} joins features of several blocks of its vision tower (vision_feature_layer)",
            hint="patches are chosen by the attention of one block",
        )
    return tower


def has_queries(anatomy: Anatomy) -> bool:
    """Whether a Q-Former stands between vision tower and language model, and reads every feature."""
    return anatomy.family.name == "instructblip"


@torch.no_grad()
def project(anatomy: Anatomy, features: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    """What the language model reads (images, n, d) of chosen features (images, k, C) of a class-token tower.

    One vector for each feature, and LLaVA-NeXT's newline behind them; a Q-Former makes as many of them as ever.
    """
    if has_queries(anatomy):
        return _queried(anatomy.model, features, inputs)
    body = anatomy.model.model
    shown: Tensor = body.multi_modal_projector(features)
    newline = getattr(body, "image_newline", None)
    if newline is not None:
        shown = torch.cat([shown, newline.to(shown).expand(len(shown), 1, -1)], dim=1)
    return shown


def _queried(model: Any, features: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    ids, asked = inputs["qformer_input_ids"], inputs.get("qformer_attention_mask")
    asked = torch.ones_like(ids) if asked is None else asked
    queries = model.query_tokens.expand(len(features), -1, -1)
    output = model.qformer(
        input_ids=ids,
        attention_mask=torch.cat([asked.new_ones(queries.shape[:2]), asked], dim=1),
        query_embeds=queries,
        encoder_hidden_states=features,
        encoder_attention_mask=asked.new_ones(features.shape[:2]),
        return_dict=True,
    )
    return model.language_projection(output[0][:, : queries.shape[1]])  # type: ignore[no-any-return]
