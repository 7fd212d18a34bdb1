"""Small byte-level tokenizers, trained on a few sentences of our own.

Byte level, so any text survives a round trip; a few hundred merges, so words still fall into several pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SENTENCES = (
    "Please describe this image in detail.",
    "A brown dog sleeps on the red sofa next to a small white cat.",
    "Two people walk along the street with a yellow umbrella in the rain.",
    "There is a bowl of fruit on the wooden table, and a cup of coffee beside it.",
    "The green bus stops in front of a tall building near the bridge.",
    "A child is holding a blue ball while a bird flies over the garden.",
    "In the background of the picture you can see a car, a bicycle and several trees.",
    "What is in the image? Is there a clock on the wall?",
)
TOKENS = 384


def tokenizer(
    specials: Sequence[str],
    *,
    bos: str | None = None,
    eos: str,
    pad: str,
    unk: str | None = None,
    roles: Mapping[str, str] | None = None,
) -> PreTrainedTokenizerFast:
    """A tokenizer of `TOKENS` tokens; ``specials`` come first in its vocabulary, in the order given.

    ``roles`` names tokens that a processor looks up as attributes (``image_token`` and its like).
    """
    core = Tokenizer(models.BPE(unk_token=unk))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(SENTENCES, trainer=trainer)
    if bos is not None:
        core.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, core.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        unk_token=unk,
        padding_side="left",
        model_max_length=4096,
        extra_special_tokens=dict(roles or {}),
        additional_special_tokens=None,
        clean_up_tokenization_spaces=False,
    )
