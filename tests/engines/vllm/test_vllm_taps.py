"""Both taps on a stand-in decoder: what they hand out is the residual stream after their blocks."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType
from types import SimpleNamespace as Plain

import pytest
import torch
from torch import nn

from reweigh.engines.vllm.taps import AuxTap, HookTap, check_tap, tap_for
from reweigh.errors import MismatchError, UnsupportedError

WIDTH, BLOCKS = 8, 4


class Block(nn.Module):
    """A block that returns its stream in two parts, as vLLM's do."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, residual):
        residual = hidden if residual is None else hidden + residual
        return self.inner(residual).tanh(), residual


class Decoder(nn.Module):
    """A decoder without auxiliary outputs, as Gemma 3's."""

    do_not_compile = False

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, input_ids, positions, intermediate_tensors, inputs_embeds):
        hidden, residual = inputs_embeds, None
        for layer in self.layers:
            hidden, residual = layer(hidden, residual)
        return self.norm(hidden + residual)


class Handing(Decoder):
    """One that hands out states after some of its blocks; a stale graph hands out others."""

    stale = 0

    def _set_aux_hidden_state_layers(self, layers):
        self.chosen = layers

    def forward(self, input_ids, positions, intermediate_tensors, inputs_embeds):
        hidden, residual, found = inputs_embeds, None, []
        for number, layer in enumerate(self.layers):
            hidden, residual = layer(hidden, residual)
            if number + 1 + self.stale in self.chosen:
                found.append(hidden + residual)
        return self.norm(hidden + residual), found


def runner(**changes):
    parts = {
        "use_aux_hidden_state_outputs": False,
        "max_num_tokens": 32,
        "dtype": torch.float32,
        "device": "cpu",
    }
    return Plain(**{**parts, **changes})


def streams(decoder, states):
    """By hand: the stream after each block."""
    hidden, residual, found = states, None, []
    for layer in decoder.layers:
        hidden, residual = layer(hidden, residual)
        found.append(hidden + residual)
    return found


def call(decoder, states):
    return decoder(input_ids=None, positions=None, intermediate_tensors=None, inputs_embeds=states)


@torch.inference_mode()
@pytest.mark.parametrize("compiled", [False, True])
def test_hooks_copy_the_stream_of_their_blocks(compiled):
    decoder, states = Decoder(), torch.randn(5, WIDTH)
    tap = tap_for(runner(), decoder, [1, 3])
    assert isinstance(tap, HookTap)
    for given in (torch.randn(7, WIDTH), states):  # a longer step before it leaves nothing in its rows
        call(torch.compile(decoder, backend="aot_eager") if compiled else decoder, given)
    expected = streams(decoder, states)
    assert list(tap.states(None)) == [1, 3]
    for layer, found in tap.states(None).items():
        assert torch.allclose(found[:5], expected[layer], atol=1e-6)


def test_auxiliary_outputs_count_the_embeddings_as_the_first():
    decoder, own = Handing(), runner()
    tap = tap_for(own, decoder, [2])
    assert isinstance(tap, AuxTap)
    assert decoder.chosen == (3,)
    assert own.use_aux_hidden_state_outputs
    states = torch.randn(5, WIDTH)
    found = tap.states(Plain(aux_hidden_states=call(decoder, states)[1]))[2]
    assert torch.equal(found, streams(decoder, states)[2])
    with pytest.raises(UnsupportedError, match="auxiliary"):
        AuxTap(own, decoder, [2])


@pytest.fixture
def forward_context(monkeypatch):
    """As vLLM's; the decoder learns whether its compiled form is asked for."""
    module, asked = ModuleType("vllm.forward_context"), []

    def set_forward_context(metadata, config, *, num_tokens, skip_compiled):
        asked.append(skip_compiled)
        return nullcontext()

    module.set_forward_context = set_forward_context
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.forward_context", module)
    return asked


@pytest.mark.parametrize("kind", [Decoder, Handing])
def test_a_compiled_tap_is_compared_with_its_block(forward_context, kind):
    decoder = kind()
    tap = tap_for(runner(), decoder, [1])
    check_tap(tap, runner(), Plain(model_config=Plain(uses_mrope=False)))
    assert forward_context == [False, True]


def test_a_graph_that_hands_out_another_block_is_refused(forward_context):
    decoder = Handing()
    tap = tap_for(runner(), decoder, [2])
    decoder.stale = 1
    with pytest.raises(MismatchError, match=r"blocks \[1\], but blocks \[2\]") as caught:
        check_tap(tap, runner(), Plain(model_config=Plain(uses_mrope=True)))
    assert "VLLM_CACHE_ROOT" in caught.value.hint


def test_an_eager_decoder_needs_no_check(forward_context):
    decoder = Handing()
    decoder.do_not_compile = True
    check_tap(tap_for(runner(), decoder, [2]), runner(), None)
    assert not forward_context
