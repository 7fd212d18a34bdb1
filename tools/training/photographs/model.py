"""The connector with its closed-form start, low-rank updates of the language model, and the packed caption pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

RANK = 16
"""Rank of the language model's updates."""
IMAGE, START, END = "<image>", "<|im_start|>", "<|im_end|>"
PROMPT = "Describe this image."
ADAPTED = ("self_attn.v_proj", "self_attn.o_proj", "mlp.down_proj")
RIDGE, THRESHOLD = 0.05, 1.0


def tokenizer_of(name: str) -> Any:
    """The language model's tokenizer with the tokens of the conversation, added where it has none."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    tokenizer.add_special_tokens({"additional_special_tokens": [START, END, IMAGE]})
    return tokenizer


def language_model(name: str, rows: int) -> Any:
    """The frozen language model, with rows of the embedding for added tokens."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    if rows > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(rows, mean_resizing=False)
    return model.requires_grad_(False).eval()


class LowRank(nn.Module):
    """A frozen linear layer plus a trained product of two thin matrices, which starts at zero."""

    def __init__(self, linear: nn.Linear, rank: int = RANK, scale: float = 2.0) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.scale * (x @ self.down.T @ self.up.T)  # type: ignore[no-any-return]

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The linear layer with the product added to its weight."""
        self.linear.weight += self.scale * self.up @ self.down
        return self.linear


class Captioner(nn.Module):
    """Connector and language model; only the connector and the low-rank updates are trained."""

    def __init__(self, language: Any, width: int) -> None:
        super().__init__()
        hidden = language.config.hidden_size
        self.connector = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.language: Any = language
        for block in language.model.layers:
            for name in ADAPTED:
                owner, _, leaf = name.rpartition(".")
                parent = block.get_submodule(owner)
                setattr(parent, leaf, LowRank(getattr(parent, leaf)))

    def merge(self) -> Any:
        """The language model with its updates folded into the weights."""
        for block in self.language.model.layers:
            for name in ADAPTED:
                owner, _, leaf = name.rpartition(".")
                parent = block.get_submodule(owner)
                setattr(parent, leaf, getattr(parent, leaf).merged())
        return self.language

    def loss(
        self,
        features: torch.Tensor,
        before: list[int],
        ask: list[int],
        answers: Sequence[Sequence[list[int]]],
    ) -> tuple[torch.Tensor, int]:
        """Summed negative log likelihood of the answers, and their number of tokens.

        A picture and the question stand once; each answer is a block that sees them and itself, at the positions it
        would have alone.
        """
        visual, rows = features.shape[1], len(features)
        prefix = len(before) + visual + len(ask)
        length = prefix + max(sum(len(answer) - 1 for answer in row) for row in answers)
        ids = torch.zeros(rows, length - len(before) - visual, dtype=torch.long)
        ids[:, : len(ask)] = torch.tensor(ask)
        block = torch.full((rows, length), -1)
        block[:, :prefix] = 0
        positions = torch.arange(length).repeat(rows, 1)
        where: list[tuple[int, int]] = []
        wanted: list[int] = []
        for row, texts in enumerate(answers):
            at = prefix
            for number, answer in enumerate(texts, 1):
                inner = len(answer) - 1
                ids[row, at - len(before) - visual :][:inner] = torch.tensor(answer[:-1])
                block[row, at : at + inner] = number
                positions[row, at : at + inner] = torch.arange(prefix, prefix + inner)
                where += [(row, prefix - 1), *((row, at + i) for i in range(inner))]
                wanted += answer
                at += inner
        seen = (block[:, None] == 0) | (block[:, :, None] == block[:, None])
        seen &= torch.ones(length, length, dtype=torch.bool).tril()
        embed = self.language.get_input_embeddings()
        start = embed(torch.tensor(before)).expand(rows, -1, -1)
        states = self.language.model(
            inputs_embeds=torch.cat([start, self.connector(features), embed(ids)], 1),
            attention_mask=seen[:, None],
            position_ids=positions,
            use_cache=False,
        ).last_hidden_state
        at_rows, at_columns = torch.tensor(where).T
        logits = self.language.lm_head(states[at_rows, at_columns])
        return F.cross_entropy(logits, torch.tensor(wanted), reduction="sum"), len(wanted)


def word_tokens(tokenizer: Any, captions: Sequence[str]) -> set[int]:
    """Tokens of the caption's longer words that are one token with the space before them."""
    words = {word for text in captions for word in re.findall(r"[a-z]{3,}", text.lower())}
    pieces = (tokenizer(" " + word, add_special_tokens=False).input_ids for word in words - COMMON)
    return {ids[0] for ids in pieces if len(ids) == 1}


@torch.no_grad()
def start_in_closed_form(
    model: Captioner, features: np.ndarray[Any, Any], bags: Sequence[set[int]]
) -> list[int]:
    """Let hidden unit j fire on patches of pictures whose captions name word j, and write that word's embedding.

    The first layer is a ridge regression from standardized patch features to the words of the picture's captions; the
    second has the embeddings of the words as columns, scaled to their norm and centered on their mean.
    """
    hidden, width = model.language.config.hidden_size, features.shape[-1]
    words = [token for token, _ in Counter(t for bag in bags for t in sorted(bag)).most_common(hidden)]
    patches = torch.from_numpy(np.asarray(features, np.float32))
    flat = patches.reshape(-1, width)
    mean, deviation = flat.mean(0), flat.std(0) + 1e-4
    flat = (flat - mean) / deviation
    named = torch.tensor([[word in bag for word in words] for bag in bags], dtype=torch.float32)
    pictures = ((patches - mean) / deviation).mean(1)
    covariance = flat.T @ flat / len(flat) + RIDGE * torch.eye(width)
    weights = torch.linalg.solve(covariance, pictures.T @ (named - named.mean(0)) / len(bags))
    weights /= (flat @ weights).std(0) + 1e-6  # a unit of variance one, which fires above the threshold
    embeddings = model.language.get_input_embeddings().weight[words]
    first: Any = model.connector[0]
    last: Any = model.connector[2]
    used = len(words)
    first.weight.zero_(), first.bias.fill_(-THRESHOLD), last.weight.zero_(), last.bias.zero_()
    first.weight[:used] = (weights / deviation[:, None]).T
    first.bias[:used] -= first.weight[:used] @ mean
    last.weight[:, :used] = embeddings.T
    center = embeddings.mean(0)
    some = model.connector(patches[:256]).reshape(-1, hidden)
    scale = embeddings.norm(dim=1).mean() / (some - some.mean(0)).norm(dim=1).mean().clamp_min(1e-6)
    last.weight *= scale
    last.bias.copy_(center - scale * some.mean(0))
    return words


_COMMON = """the and are with that this from for into out over through down off two three four five one some other another
who has his her their its near next behind front very she they him while what which was onto under around between"""
COMMON = frozenset(re.findall(r"\w+", _COMMON))
"""Words that name nothing in a picture."""
