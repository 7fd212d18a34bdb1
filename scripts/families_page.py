"""Write the table of docs/families.md: every image-text-to-text type of the installed transformers, and what becomes of it.

    python scripts/families_page.py   # in the environment of scripts/test-newest, whose release has all types

Each type's default model is built without memory, on torch's meta device. "Tested" is what the tests build and run.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "families.md"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
BEGIN, END = "<!-- made by scripts/families_page.py -->\n", "<!-- end -->"

ROPE = {"rope_type": "default", "rope_theta": 10000.0}
GIVEN: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "cohere_compass": {
        "text_config": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}}
    },
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense"] * 40}},
    "emu3": {"vocabulary_map": {"<image>": 5}},
    "hunyuan_vl": {"text_config": {"head_dim": 128}},
    "instructblipvideo": {"video_token_index": 5},
    "minicpm_ocr": {"image_token_id": 5},
    "minicpmv4_7": {"image_token_id": 5},
}
"""What a type's default configuration lacks, and its checkpoints have."""


def tested_types() -> set[str]:
    """The types that the tests build, read and edit."""
    from checkpoints import FAMILIES
    from checkpoints.more import MORE

    return {*FAMILIES, *MORE}


def row_of(kind: str, tested: set[str]) -> tuple[str, str]:
    """Return the status of one type and what there is to say about it."""
    import torch
    from transformers import AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from reweigh.errors import UnsupportedError
    from reweigh.families.anatomy import find_anatomy
    from reweigh.families.catalogue import FAMILIES, Family

    family = FAMILIES[kind] if kind in FAMILIES else Family(kind)
    if family.refused is not None:
        return "refused", family.refused
    if kind in tested:
        return "tested", "with the patch of each position" if family.pictures is not None else ""
    try:
        config = CONFIG_MAPPING[kind](**GIVEN.get(kind, {}))
        with torch.device("meta"):
            model = AutoModelForImageTextToText.from_config(config)
        anatomy = find_anatomy(model)
    except UnsupportedError as error:
        return "refused", error.message.removeprefix(f"{type(model).__name__} ")
    except ImportError as error:
        package = re.search(r"requires the (\w+) library", str(error))
        return "not built", f"needs {package.group(1) if package else error.name}"
    except Exception:  # a default configuration of transformers that fits no model
        return "not built", "its default configuration describes no model"
    names = {id(module): name for name, module in model.named_modules()}
    return "structure found", f"`{names[id(anatomy.blocks)]}`"


def installed_types() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    return sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)


def table() -> dict[str, str]:
    """The row of each type of the installed transformers."""
    tested = tested_types()
    rows = {}
    for kind in installed_types():
        status, about = row_of(kind, tested)
        rows[kind] = f"| `{kind}` | {status} | {about} |".replace("|  |", "| |")
    return rows


def written() -> dict[str, str]:
    """The rows of the page."""
    body = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    return dict(re.findall(r"^(?=\| `(\w[\w.-]*)` )(.*)$", body, flags=re.MULTILINE))


def differences() -> list[str]:
    """Rows of the installed release that the page has otherwise or not at all, but for missing packages."""
    known = written()
    return [
        row
        for kind, row in table().items()
        if known.get(kind) != row and "| not built |" not in row + known.get(kind, "")
    ]


def main() -> None:
    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows = table()
    counts = [
        f"{sum(f'| {status} |' in row for row in rows.values())} {status}"
        for status in ("tested", "structure found", "refused", "not built")
    ]
    head = (
        f"The {len(rows)} types of transformers {importlib.metadata.version('transformers')}: {', '.join(counts)}.\n\n"
        "| type | | where its blocks are, or why not |\n|---|---|---|\n"
    )
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + head + "\n".join(rows.values()) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
