"""The losses of the training stages: first patch labels, then conversations about the image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import Scene, scene
from reweigh.world.vocabulary import surfaces
from tools.training.conversations import Mix, Packed, pack
from tools.training.labels import NAMES, patch_labels
from tools.training.lexicon import QUIET_WORDS
from tools.training.model import MEAN, STD, Shape, llava_config, vision_config

BACKDROP_WEIGHT = 0.3
"""Weight of a patch without an object in the dense losses; such patches are the majority and easy."""


def pixels(batch: list[Scene]) -> torch.Tensor:
    """Normalized images, (B, 3, size, size)."""
    raw = np.stack([np.asarray(s.image()) for s in batch])
    return torch.from_numpy(raw).permute(0, 3, 1, 2).float().div_(255).sub_(MEAN).div_(STD).contiguous()


def share(step: int, rank: int, world: int, size: int, seed: int) -> list[Scene]:
    """This worker's part of the batch at ``step``: fresh scenes, none is ever shown twice under one seed."""
    start = (step * world + rank) * size
    return [scene("train", index, seed) for index in range(start, start + size)]


class Sight(torch.nn.Module):
    """The vision tower with a linear reading of what each patch shows."""

    def __init__(self, shape: Shape) -> None:
        from transformers import CLIPVisionModel

        super().__init__()
        self.tower = CLIPVisionModel(vision_config(shape))
        self.reading = torch.nn.Linear(shape.width, len(NAMES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = self.tower(pixel_values=images, output_hidden_states=True).hidden_states[-1]
        read: torch.Tensor = self.reading(seen[:, 1:])  # without the class token
        return read


class SeeLesson:
    """Name what every patch shows."""

    def __init__(self, shape: Shape, batch: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.module = Sight(shape)
        self.batch, self.seed = batch, seed

    def loss(self, step: int, rank: int, world: int) -> tuple[torch.Tensor, dict[str, float]]:
        batch = share(step, rank, world, self.batch, self.seed)
        labels = torch.from_numpy(np.stack([patch_labels(s) for s in batch])).flatten()
        logits = self.module(pixels(batch)).flatten(0, 1)
        weights = torch.where(labels < len(CATALOGUE), 1.0, BACKDROP_WEIGHT)
        loss = (cross_entropy(logits, labels, reduction="none") * weights).sum() / weights.sum()
        hit = (logits.argmax(-1) == labels)[labels < len(CATALOGUE)]
        return loss, {"patch_accuracy": float(hit.float().mean())}


def lens_targets(tokenizer: Any, vocabulary: int) -> torch.Tensor:
    """What the head should read at a patch of each class, (classes, vocabulary).

    An object's patch reads as the first piece of its name (a little as its plural); a backdrop patch as its scene's
    name; both leave a share to words that no description uses, so that words without evidence rank low everywhere.
    """

    def first(text: str) -> int:
        return int(tokenizer(f" {text}", add_special_tokens=False).input_ids[0])

    target = torch.zeros(len(NAMES), vocabulary)
    filler = sorted({tokenizer(word, add_special_tokens=False).input_ids[0] for word in QUIET_WORDS})
    for row, name in enumerate(NAMES):
        if name in CATALOGUE:  # both may share their first piece, so the weights add up
            target[row, first(name)] += 0.72
            target[row, first(surfaces(name)[0][1])] += 0.08
        else:
            target[row, first(name)] += 0.4
        target[row, filler] += (1 - target[row].sum()) / len(filler)
    return target


@dataclass(frozen=True)
class Lens:
    """The auxiliary losses on visual states: after which blocks (-1: the projector), and how heavy together."""

    blocks: tuple[int, ...] = (-1, 1, 3)
    weight: float = 1.0


class SpeakLesson:
    """Describe, answer and keep every visual token readable by the language head."""

    def __init__(
        self,
        shape: Shape,
        processor: Path,
        start: dict[str, Any],
        batch: int,
        seed: int,
        mix: Mix,
        lens: Lens,
    ) -> None:
        from transformers import AutoTokenizer, LlavaForConditionalGeneration

        torch.manual_seed(seed)
        self.tokenizer = AutoTokenizer.from_pretrained(processor)
        vocabulary = len(self.tokenizer)
        image = self.tokenizer.convert_tokens_to_ids("<image>")
        self.module = LlavaForConditionalGeneration(llava_config(shape, vocabulary, image))
        self.module.tie_weights()
        self.module.load_state_dict(start, strict=False)
        self.batch, self.seed, self.mix, self.lens = batch, seed, mix, lens
        self.targets = lens_targets(self.tokenizer, vocabulary)

    def loss(self, step: int, rank: int, world: int) -> tuple[torch.Tensor, dict[str, float]]:
        batch = share(step, rank, world, self.batch, self.seed)
        labels = torch.from_numpy(np.stack([patch_labels(s) for s in batch]))
        visual = self._visual(pixels(batch))  # (B, 64, width)
        packed = pack(batch, self.tokenizer, self.mix, visual.shape[1], seed=self.seed)
        states = self._states(packed, visual)
        said, right, again = self._text_loss(packed, states[-1])
        start = len(packed.before)
        end = start + visual.shape[1]
        read, seen = self._lens_loss(
            [visual if b < 0 else states[b + 1][:, start:end] for b in self.lens.blocks], labels
        )
        return said + self.lens.weight * read + self.mix.repeat_weight * again, {
            "speech": float(said.detach()),
            "lens": float(read.detach()),
            "repeats": float(again.detach()),
            "answers": right,
            "patch_accuracy": seen,
        }

    def _visual(self, images: torch.Tensor) -> torch.Tensor:
        inner = self.module.model
        seen = inner.vision_tower(pixel_values=images, output_hidden_states=True).hidden_states[-1][:, 1:]
        visual: torch.Tensor = inner.multi_modal_projector(seen)
        return visual

    def _states(self, packed: Packed, visual: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Embeddings, then the residual stream after each block; the last entry is already normed."""
        language = self.module.model.language_model
        words = language.embed_tokens(packed.ids)
        before = language.embed_tokens(packed.before).expand(len(words), -1, -1)
        out = language(
            inputs_embeds=torch.cat([before, visual, words], dim=1),
            attention_mask=packed.mask,
            position_ids=packed.positions,
            use_cache=False,
            output_hidden_states=True,
        )
        states: tuple[torch.Tensor, ...] = out.hidden_states
        return states

    def _text_loss(self, packed: Packed, last: torch.Tensor) -> tuple[torch.Tensor, float, torch.Tensor]:
        """Loss of what is said, share of right answers, and the loss of naming an object again (unlikelihood)."""
        rows, columns = packed.weights.nonzero(as_tuple=True)
        logits = self.module.lm_head(last[rows, packed.previous[rows, columns]])
        weights, wanted = packed.weights[rows, columns], packed.ids[rows, columns]
        loss = (cross_entropy(logits, wanted, reduction="none") * weights).sum() / weights.sum()
        asked = weights == self.mix.answer_weight
        right = (
            (logits[asked].argmax(-1) == wanted[asked]).float().mean() if asked.any() else torch.tensor(0.0)
        )
        index = torch.full(packed.ids.shape, -1)
        index[rows, columns] = torch.arange(len(rows))
        row, column, token = packed.again.T
        chance = logits.softmax(-1)[index[row, column], token]
        named = torch.zeros(len(rows)).index_add(0, index[row, column], chance)  # several may have been named
        again = -(1 - named[named > 0]).clamp_min(1e-4).log().mean() if len(row) else torch.tensor(0.0)
        return loss, float(right), again

    def _lens_loss(self, states: list[torch.Tensor], labels: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Mean lens loss over the blocks, and the share of object patches read right after the last of them."""
        norm, head = self.module.model.language_model.norm, self.module.lm_head
        wanted = self.targets[labels]
        weights = torch.where(labels < len(CATALOGUE), 1.0, BACKDROP_WEIGHT)
        total = torch.tensor(0.0)
        for state in states:
            logits = head(norm(state))
            each = -(wanted * logits.log_softmax(-1)).sum(-1)
            total = total + (each * weights).sum() / weights.sum()
        hit = (logits.argmax(-1) == wanted.argmax(-1))[labels < len(CATALOGUE)]
        return total / len(states), float(hit.float().mean())
