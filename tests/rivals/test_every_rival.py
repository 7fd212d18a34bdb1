"""Every decoder on every family: greedy, sampling, beams, batches; null settings; names and refusals."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from random_vectors import random_vectors
from transformers import DynamicCache

import reweigh
import twin
from checkpoints import BLOCKS, FAMILIES, VOCABULARY, load, picture
from reweigh.errors import InputError, UnknownNameError, UnsupportedError
from reweigh.families.prompts import build_inputs
from reweigh.rivals import DECODERS, Decoder
from reweigh.rivals.tools.branch import Branch

pytestmark = pytest.mark.numerics

OPTIONS = {
    "greedy": {},
    "beam": {"num_beams": 3},
    "nucleus": {},
    "cut": {},
    "push": {},
    "vcd": {},
    "pai": {},
    "m3id": {"decay": 0.2},
    "icd": {},
    "sid": {"keep": 4},
    "dola": {},
    "deco": {},
    "revisit": {},
    "mcot": {"alpha": 5.0, "gamma": 0.3},
    "code": {"description_tokens": 5},
    "damro": {"keep": 3},
    "vista": {},
    "only": {},
    "asd": {"lam": 0.3},
    "vti": {"lam": 4.0},
    "nullu": {"rank": 3},
    "memvr": {"ratio": 0.5, "gamma": 0.0},
    "projectaway": {"erase": ["image", "detail"], "weight": 4.0},
    "opera": {"num_beams": 2, "num_attn_candidates": 3},
}
PLAIN = tuple(family for family in FAMILIES if family != "gemma3")  # it norms what its MLPs give
SERVED = {"damro": ("llava", "llava_next", "instructblip"), "vista": PLAIN, "only": PLAIN, "vti": PLAIN}
REGIMES = [{"do_sample": False}, {"do_sample": True, "top_k": 0}, {"num_beams": 3, "do_sample": False}]
NULL = {
    "greedy": {},
    "cut": {"beta": 0.0},
    "push": {"gap": 0.0},
    "vcd": {"alpha": 0.0, "beta": 0.0},
    "pai": {"alpha": 0.0, "gamma": 1.0},
    "m3id": {"decay": 0.0},
    "icd": {"alpha": 0.0, "beta": 0.0},
    "sid": {"alpha": 0.0, "beta": 0.0},
    "damro": {"alpha": 0.0, "beta": 0.0},
    "mcot": {"alpha": 0.0},
    "vista": {"lam": 0.0, "alpha": 0.0},
    "asd": {"lam": 0.0, "alpha": 3.0},
    "vti": {"lam": 0.0},
    "nullu": {"rank": 0},
    "memvr": {"ratio": 0.0},
    "projectaway": {"erase": ["image"], "weight": 0.0},
}


def pairs(methods):
    """Each method with each family that it serves."""
    return [(method, family) for method in methods for family in SERVED.get(method, FAMILIES)]


def attach(method, model, processor, options=None):
    """The decoder with the options of these tests, and random vectors where it needs some."""
    options = OPTIONS[method] if options is None else options
    if method in ("asd", "vti", "nullu"):
        width = model.get_output_embeddings().weight.shape[1]
        options = {**options, "vectors": random_vectors(BLOCKS, width), "force": True}
    return reweigh.decoder(method, model, processor, **options)


def run(model, inputs, **options):
    torch.manual_seed(3)
    return model.generate(
        **inputs, max_new_tokens=4, return_dict_in_generate=True, output_logits=True, **options
    )


@pytest.mark.parametrize(("method", "family"), pairs(name for name in OPTIONS if name != "opera"))
def test_every_regime_runs_and_leaves_the_model_as_it_was(method, family, loaded, batch):
    model, processor = loaded(family)
    inputs = batch(family)
    before = run(model, inputs, do_sample=False)
    for regime in REGIMES:
        with attach(method, model, processor):
            output = run(model, inputs, **regime)
        assert output.sequences.shape[0] == 2
        assert output.sequences.shape[1] > inputs["input_ids"].shape[1]
        for logits in output.logits:
            assert not torch.isnan(logits).any()
            assert bool((logits > float("-inf")).any(dim=-1).all())
    after = run(model, inputs, do_sample=False)
    assert torch.equal(before.sequences, after.sequences)
    assert all(torch.equal(a, b) for a, b in zip(before.logits, after.logits, strict=True))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(("method", "family"), pairs(NULL))
def test_null_settings_are_the_base_model_bit_for_bit(method, regime, family, loaded, batch):
    model, processor = loaded(family)
    inputs = batch(family)
    base = run(model, inputs, **regime)
    with attach(method, model, processor, NULL[method]):
        ours = run(model, inputs, **regime)
    assert torch.equal(base.sequences, ours.sequences)
    assert all(torch.equal(a, b) for a, b in zip(base.logits, ours.logits, strict=True))


@pytest.mark.parametrize(
    ("method", "family"),
    pairs(name for name in OPTIONS if name not in ("greedy", "beam", "nucleus", "cut", "push", "opera")),
)
def test_a_row_is_decoded_alike_in_any_batch(method, family, loaded, batch):
    model, processor = loaded(family)
    # the Q-Former of InstructBLIP reads its padding: only prompts of one length are alike in any batch
    rows = (0, 2) if family == "instructblip" else (0, 1)
    with attach(method, model, processor):
        both = run(model, batch(family, rows=rows), do_sample=False, eos_token_id=None)
        alone = [run(model, batch(family, rows=(row,)), do_sample=False, eos_token_id=None) for row in rows]
    for row in (0, 1):
        assert torch.equal(both.sequences[row, -4:], alone[row].sequences[0, -4:])
        finite = torch.isfinite(alone[row].logits[0][0])
        torch.testing.assert_close(
            both.logits[0][row][finite], alone[row].logits[0][0][finite], atol=2e-3, rtol=1e-3
        )


BY_IMAGE = [
    "vcd",
    "pai",
    "m3id",
    "icd",
    "revisit",
    "mcot",
    "code",
    "damro",
    "asd",
    "vti",
    "nullu",
    "memvr",
    "projectaway",
]


@pytest.mark.parametrize("method", BY_IMAGE)
def test_a_row_without_image_is_the_base_models(method, loaded):
    model, processor = loaded("llava")
    inputs = build_inputs(model, processor, [picture(1), None], ["What is it?", "Tell me a story."])
    base = run(model, inputs, do_sample=False)
    options = {**OPTIONS[method], **({"alpha": 0.0} if method == "pai" else {})}
    with attach(method, model, processor, options):
        ours = run(model, inputs, do_sample=False)
    assert torch.equal(base.sequences[1], ours.sequences[1])
    for a, b in zip(base.logits, ours.logits, strict=True):
        torch.testing.assert_close(a[1], b[1])
    assert not torch.equal(base.logits[-1][0], ours.logits[-1][0])


def test_processors_come_after_the_formula(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    with reweigh.decoder("vcd", model, processor):
        found = model.generate(
            **inputs,
            max_new_tokens=2,
            do_sample=True,
            top_k=0,
            temperature=0.5,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
        )
    torch.testing.assert_close(found.scores[0], found.logits[0] / 0.5)


def test_unknown_names_and_options_suggest_the_nearest(loaded, monkeypatch):
    model, processor = loaded("llava")
    monkeypatch.setattr(model, "name_or_path", "")  # no processor can be found beside it
    with pytest.raises(UnknownNameError, match="did you mean vcd"):
        reweigh.decoder("vdc", model, processor)
    with pytest.raises(InputError, match="did you mean alpha"):
        reweigh.decoder("vcd", model, processor, alfa=1.0)
    with pytest.raises(InputError, match="table"):
        reweigh.decoder("reweigh", model, processor)
    with pytest.raises(InputError, match="processor"):
        reweigh.decoder("icd", model)
    with pytest.raises(InputError, match="beta"):
        reweigh.decoder("vcd", model, processor, beta=1.5)


def test_a_model_without_images_is_refused_with_the_reason():
    import transformers as hf

    config = hf.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    with pytest.raises(UnsupportedError, match="image token"):
        reweigh.decoder("vcd", hf.LlamaForCausalLM(config))


def test_one_model_carries_one_decoder_at_a_time(loaded):
    model, processor = loaded("llava")
    with (
        reweigh.decoder("vcd", model, processor),
        pytest.raises(UnsupportedError, match="another decoder"),
        reweigh.decoder("dola", model, processor),
    ):
        pass
    with reweigh.decoder("dola", model, processor):
        pass


def test_a_third_party_decoder_costs_a_few_lines(loaded, batch):
    class Loud(Decoder):
        """Adds a constant to one token."""

        def __init__(self, anatomy, processor=None, *, token=7, amount=100.0):
            super().__init__(anatomy, processor)
            self.token, self.amount = token, amount

        def edit(self, forward):
            logits = forward.logits.clone()
            logits[..., self.token] += self.amount
            return logits

    model, processor = loaded("llava")
    inputs = batch("llava")
    with DECODERS.sandbox():
        DECODERS.add("loud", Loud)
        output = reweigh.decoder("loud", model, processor, token=9).generate(
            **inputs, max_new_tokens=3, do_sample=False
        )
        assert bool((output[:, inputs["input_ids"].shape[1] :] == 9).all())


def test_reweigh_is_a_decoder_like_the_others(loaded, batch):
    model, processor = loaded("llava")
    inputs, table = batch("llava"), twin.table(VOCABULARY)
    base = run(model, inputs, do_sample=False)
    with reweigh.decoder("reweigh", model, processor, table=table, beta=0.0, force=True):
        null = run(model, inputs, do_sample=False)
    assert all(torch.equal(a, b) for a, b in zip(base.logits, null.logits, strict=True))
    with reweigh.attach(model, processor, table=table, beta=2.0, force=True):
        ours = run(model, inputs, do_sample=False)
    with reweigh.decoder("reweigh", model, processor, table=table, beta=2.0, force=True):
        same = run(model, inputs, do_sample=False)
    assert all(torch.equal(a, b) for a, b in zip(ours.logits, same.logits, strict=True))
    assert not torch.equal(base.logits[0], ours.logits[0])


def test_describe_has_the_shape_of_attach(loaded):
    model, processor = loaded("llava")
    attached = reweigh.decoder("beam", model, processor, num_beams=2)
    texts = attached.describe([picture(1), picture(2)], max_new_tokens=4)
    assert len(texts) == 2
    assert isinstance(attached.describe(picture(1), max_new_tokens=4), str)


def test_the_plain_baselines_set_their_regime(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava")
    with reweigh.decoder("beam", model, processor, num_beams=4):
        ours = model.generate(**inputs, max_new_tokens=6)
    assert torch.equal(ours, model.generate(**inputs, max_new_tokens=6, num_beams=4, do_sample=False))
    torch.manual_seed(1)
    with reweigh.decoder("nucleus", model, processor, top_p=0.5):
        ours = model.generate(**inputs, max_new_tokens=6)
    torch.manual_seed(1)
    wanted = model.generate(**inputs, max_new_tokens=6, do_sample=True, top_p=0.5, top_k=0)
    assert torch.equal(ours, wanted)


COLUMN_BY_COLUMN = ["vcd", "m3id", "icd", "sid", "pai", "dola", "deco", "revisit", "mcot", "cut", "code"]
COLUMN_BY_COLUMN += ["damro", "vista", "only", "asd", "vti", "nullu", "projectaway"]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, OPTIONS[name]) for name in COLUMN_BY_COLUMN),
        ("pai", {"alpha": 3.0, "gamma": 1.0}),
        ("pai", {"alpha": 3.0, "gamma": 1.5}),
    ],
)
def test_without_a_cache_an_answer_is_the_same(method, options, loaded, batch):
    """Every pass reads prompt and answer again, each token as its own step read it."""
    model, processor = loaded("llava")
    with attach(method, model, processor, options):
        cached = run(model, batch("llava"), do_sample=False, eos_token_id=None)
        again = run(model, batch("llava"), do_sample=False, eos_token_id=None, use_cache=False)
    assert torch.equal(cached.sequences, again.sequences)
    for a, b in zip(cached.logits, again.logits, strict=True):
        both = torch.isfinite(a) & torch.isfinite(b)
        torch.testing.assert_close(a[both], b[both], atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("method", [name for name in COLUMN_BY_COLUMN if name != "dola"])
def test_a_loop_of_ones_own_is_decoded_as_generate_decodes(method, loaded, batch):
    """DoLa also has a repetition penalty, which is generate's."""
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    with attach(method, model, processor), torch.no_grad():
        wanted = run(model, inputs, do_sample=False, eos_token_id=None)
        cache, tokens, given = DynamicCache(), [], inputs
        for _ in wanted.logits:
            logits = model(**given, past_key_values=cache, use_cache=True).logits[:, -1]
            tokens.append(logits.argmax(dim=-1, keepdim=True))
            mask = torch.ones(1, cache.get_seq_length() + 1, dtype=torch.int64)
            given = {"input_ids": tokens[-1], "attention_mask": mask}
    assert torch.equal(torch.cat(tokens, dim=1)[0], wanted.sequences[0, -len(tokens) :])
    both = torch.isfinite(logits) & torch.isfinite(wanted.logits[-1])
    torch.testing.assert_close(logits[both], wanted.logits[-1][both], atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("method", COLUMN_BY_COLUMN)
def test_a_drafted_answer_is_decoded_as_an_undrafted_one(method, loaded, batch):
    """Several columns in one pass, the first together with the prompt, and a main cache that is cropped."""
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    assistant = copy.deepcopy(model)
    with torch.no_grad():
        assistant.model.language_model.norm.weight[::3] += 0.05
    options = {"do_sample": False, "max_new_tokens": 8}
    cropped = []
    with attach(method, model, processor):
        alone = model.generate(**inputs, **options)
        with pytest.MonkeyPatch.context() as patch:
            crop = Branch.crop
            patch.setattr(
                Branch, "crop", lambda self, columns: (cropped.append(columns), crop(self, columns))
            )
            drafted = model.generate(**inputs, **options, assistant_model=assistant)
    assert torch.equal(alone, drafted)
    assert method not in ("vcd", "m3id", "icd") or any(cropped)


@pytest.mark.parametrize("method", [*BY_IMAGE, "sid", "vista"])
def test_a_finished_generation_is_released(method, loaded, batch):
    model, processor = loaded("llava")
    alive = []
    attached = attach(method, model, processor)
    edit = attached.decoder.edit

    def noted(forward):
        result = edit(forward)
        kept = [row.reading for row in forward.rows if isinstance(row.reading, torch.Tensor)]
        branches = forward.prompt.batch.branches.values()
        alive.extend(map(weakref.ref, [forward.arguments["past_key_values"], *branches, *kept]))
        return result

    attached.decoder.edit = noted
    with attached:
        model.generate(**batch("llava"), max_new_tokens=3, do_sample=False)
        gc.collect()
        assert alive
        assert all(one() is None for one in alive)


@pytest.mark.parametrize("method", [name for name in OPTIONS if name not in ("greedy", "beam", "nucleus")])
def test_half_precision_is_mixed_in_single(method, checkpoint):
    model, processor = load(checkpoint("llava"))
    model = model.to(torch.bfloat16)
    inputs = build_inputs(
        model, processor, [picture(1), picture(2)], ["What is it?", "Tell me more about it."]
    )
    seen = []
    with attach(method, model, processor) as attached:
        edit = attached.decoder.edit
        attached.decoder.edit = lambda forward: seen.append(edit(forward)) or seen[-1]
        returned = {} if method == "opera" else {"num_return_sequences": 2, "do_sample": True, "top_k": 0}
        output = model.generate(**inputs, max_new_tokens=4, **returned)
    assert output.shape[0] == (2 if method == "opera" else 4)
    assert all(logits is None or logits.dtype == torch.float32 for logits in seen)
