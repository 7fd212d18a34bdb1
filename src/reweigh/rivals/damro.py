"""DAMRO (Gong et al., EMNLP 2024): contrast with a branch that sees only the patches its vision tower attends to most.

y = (1 + alpha) a - alpha r on the tokens with a >= max a + ln beta; the image of branch r is the ``keep`` patches to which
the tower's class token attends most, the most attended first.

In LLaVA-1.5 and LLaVA-NeXT (overview only) these patches replace the image; InstructBLIP's Q-Former reads them. As in the
official program, LLaVA's attention is not split into heads, and where the class token is among the features (InstructBLIP)
the patch before each chosen one is taken. The official sampler ignores temperature, top-p and repetition penalty; here
they apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    SAMPLING,
    Anatomy,
    Contrast,
    Prompt,
    UnsupportedError,
    in_range,
    padded,
    pixels,
    prompt_ids,
    rows_of,
)

SERVED = ("llava", "llava_next", "instructblip")


class DAMRO(Contrast):
    """Contrast with the most attended patches.

    Args:
        alpha: Weight of the contrast; the official InstructBLIP scripts use 0.5 for POPE and 1.5 for CHAIR.
        beta: Plausibility cut.
        keep: Patches kept; 10 by default, 4 for InstructBLIP.
    """

    title = "DAMRO"
    grid = (("alpha", (0.5, 1.0, 2.0)), ("beta", (0.1, 0.3)))
    regime = SAMPLING

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 2.0,
        beta: float = 0.1,
        keep: int | None = None,
    ) -> None:
        super().__init__(anatomy, processor, alpha=alpha, beta=beta)
        self.tower = class_token_tower(anatomy)
        self.has_queries = anatomy.family.name == "instructblip"
        # in InstructBLIP the block before the last, although the Q-Former reads the features of the last
        self.layer: int = -2 if self.has_queries else anatomy.config.vision_feature_layer
        view, usual = self.tower.config, 4 if self.has_queries else 10
        patches = (view.image_size // view.patch_size) ** 2
        self.keep = int(in_range("keep", usual if keep is None else keep, 1, patches))

    def branch_inputs(self, prompt: Prompt) -> dict[str, Any]:
        """Return the prompt as embeddings, with the chosen vectors in the image's place."""
        images = self._images(prompt.inputs)
        image, runs, rows = self.anatomy.image_tokens, 0, []
        for row in rows_of(prompt.inputs):
            shorter: list[int] = []
            for token, run in groupby(row):
                count = len(list(run)) if token not in image else images.shape[1]
                shorter += [token] * count
                runs += token in image
            rows.append(shorter)
        if runs != len(images):
            raise UnsupportedError(
                f"{len(images)} images were given, but the prompt has {runs} runs of image tokens",
                hint="put text between images",
            )
        inputs = padded(rows, prompt_ids(prompt.inputs).device)
        visual = torch.isin(inputs["input_ids"], torch.tensor(image, device=inputs["input_ids"].device))
        visual &= inputs["attention_mask"].bool()
        embeds = self.anatomy.model.get_input_embeddings()(inputs["input_ids"].masked_fill(visual, 0))
        embeds[visual] = images.flatten(0, 1).to(embeds)
        return {**inputs, "inputs_embeds": embeds}

    @torch.no_grad()
    def _images(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return what the language model reads of each image, (images, n, d): chosen patches, and LLaVA-NeXT's newline."""
        picture = pixels(inputs)
        chosen = self.choose(picture[:, 0] if picture.ndim == 5 else picture)  # tiles come after the overview
        if self.has_queries:
            return queried(self.anatomy.model, chosen, inputs)
        body = self.anatomy.model.model
        shown: Tensor = body.multi_modal_projector(chosen)
        newline = getattr(body, "image_newline", None)
        if newline is not None:
            shown = torch.cat([shown, newline.to(shown).expand(len(shown), 1, -1)], dim=1)
        return shown

    def choose(self, picture: Tensor) -> Tensor:
        """Return the features (images, keep, C) of the patches that the class token attends to most, in that order."""
        output = self.tower(picture, output_hidden_states=True, return_dict=True)
        states, blocks = output.hidden_states, self.tower.encoder.layers
        block = blocks[self.layer]
        seen, attention = block.layer_norm1(states[self.layer % len(blocks)]), block.self_attn
        if self.has_queries:
            features = output.last_hidden_state
            query, key, _ = attention.qkv(seen).chunk(3, dim=-1)
            shares = class_attention(query, key, attention.num_heads)
        else:
            has_class = self.anatomy.config.vision_feature_select_strategy != "default"
            features = states[self.layer][:, 0 if has_class else 1 :]
            shares = class_attention(attention.q_proj(seen), attention.k_proj(seen), 1)
        # as in the official program, patch i takes feature i: off by one where the features include the class token
        places = shares.topk(self.keep, dim=1).indices
        return features.gather(1, places[..., None].expand(-1, -1, features.shape[-1]))  # type: ignore[no-any-return]


def class_attention(query: Tensor, key: Tensor, heads: int) -> Tensor:
    """Return the class token's attention (B, N) to the N patches after it: the mean of ``heads`` softmaxes, in float32.

    Args:
        query: Queries (B, 1 + N, C), not yet split into heads.
        key: Keys of the same shape.
    """
    wide = torch.promote_types(query.dtype, torch.float32)  # 16 bits would tie patches
    q, k = (part.to(wide).view(*part.shape[:2], heads, -1).transpose(1, 2) for part in (query, key))
    scores = q[:, :, :1] @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights: Tensor = scores.softmax(-1)
    return weights.mean(dim=1)[:, 0, 1:]


def class_token_tower(anatomy: Anatomy) -> Any:
    """Return the vision tower; refuse one without a class token, or a model that merges patches."""
    model, name = anatomy.model, type(anatomy.model).__name__
    if anatomy.family.name not in SERVED:
        raise UnsupportedError(
            f"{name} does not make one image token of each patch, or its vision tower has no class token, so the most "
            "attended patches cannot replace the image",
            hint="use LLaVA-1.5, LLaVA-NeXT or InstructBLIP",
        )
    tower = model.vision_model if hasattr(model, "vision_model") else model.model.vision_tower
    if not hasattr(getattr(tower, "embeddings", None), "class_embedding"):
        raise UnsupportedError(
            f"the vision tower of {name} has no class token whose attention could be read",
            hint="use a checkpoint with a CLIP vision tower",
        )
    if not isinstance(getattr(anatomy.config, "vision_feature_layer", -1), int):
        raise UnsupportedError(
            f"{name} joins features of several blocks of its vision tower (vision_feature_layer)",
            hint="patches are chosen by the attention of one block",
        )
    return tower


def queried(model: Any, features: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    """Let the Q-Former read the chosen features (images, k, C)."""
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
