"""Logits and hidden states of each step by fresh passes, and the formulas of layers in NumPy."""

from __future__ import annotations

import numpy as np

import reweigh


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(p, q):
    m = (np.exp(p) + np.exp(q)) / 2
    return 0.5 * ((m * (np.log(m) - p)).mean(-1) + (m * (np.log(m) - q)).mean(-1))


def steps(model, inputs, count=3):
    """The base model's own choice of tokens with final logits and all hidden states of each step, as arrays."""
    output = model.generate(
        **inputs,
        max_new_tokens=count,
        do_sample=False,
        output_logits=True,
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    return [
        (logits.numpy(), states) for logits, states in zip(output.logits, output.hidden_states, strict=True)
    ]


def head_of(model):
    return model.get_output_embeddings().weight.detach().numpy()


def norm_of(model, states):
    module = model.language_model if hasattr(model, "language_model") else model.model.language_model
    return getattr(module, "norm", None)(states) if hasattr(module, "norm") else module.model.norm(states)


def edited(model, processor, inputs, name, count=3, **options):
    """What the decoder makes of the same passes: its edits are noted, the base model's tokens are kept."""
    attached = reweigh.decoder(name, model, processor, **options)
    edit, kept = attached.decoder.edit, []

    def noted(forward):
        kept.append(edit(forward)[:, -1].clone())

    attached.decoder.edit = noted
    with attached:
        model.generate(**inputs, max_new_tokens=count, do_sample=False, repetition_penalty=1.0)
    return [one.numpy() for one in kept]
