"""Export a reference table as a folder for the Hub: the table with its tuned point, a model card and ``custom_generate``."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

from reweigh import __version__
from reweigh.files.outputs import RECORD, claim, write_output
from reweigh.integrations import custom_generate as shipped
from reweigh.tables.store import fetch_folder, push_folder
from reweigh.tables.table import ReferenceTable

CARD = "README.md"
GENERATE = "custom_generate/generate.py"
REQUIREMENTS = "custom_generate/requirements.txt"


def export_table(
    source: str | Path, out: Path, *, layer: int | None = None, repo: str | None = None
) -> list[Path]:
    """Write a table, its point, a card and code for ``custom_generate`` into a folder for the Hub; return the files.

    Args:
        source: The folder of a table or a calibration, or a Hub repository.
        layer: Which of several tables to take; by default the tuned one.
        repo: The Hub repository that the folder goes to; its code then finds the table by itself.
    """
    table = ReferenceTable.from_pretrained(fetch_folder(source), layer=layer)
    texts = {
        CARD: _card(table, repo),
        GENERATE: _code(repo),
        REQUIREMENTS: f"reweigh>={__version__}\n",
    }
    claim([out / name for name in texts])
    files = [table.save_pretrained(out)]
    return [*files, *(write_output(out / name, text) for name, text in texts.items())]


def push_table(
    source: str | Path, repo: str, *, layer: int | None = None, private: bool | None = None
) -> str:
    """Upload a table with its point, card and ``custom_generate`` to a Hub repository; return its address."""
    with tempfile.TemporaryDirectory() as folder:
        export_table(source, Path(folder), layer=layer, repo=repo)
        return push_folder(
            folder,
            repo,
            private=private,
            token=None,
            commit_message="Add a reference table",
            ignore_patterns=[RECORD, f"*/{RECORD}"],
        )


def _code(repo: str | None) -> str:
    """The file that transformers will run, with the repository in which it finds its table."""
    source = inspect.getsource(shipped)
    return source.replace("TABLE = None\n", f"TABLE = {repo!r}\n", 1)


def _card(table: ReferenceTable, repo: str | None) -> str:
    made: Any = table.about
    identity = made["identity"]
    model = str(identity.get("model_id") or "your-model")
    on_hub = model.count("/") == 1 and not model.startswith((".", "/"))
    facts = {
        "layer": f"{table.layer} of {identity.get('blocks', '?')}",
        "operating point": str(table.point or "none recorded: pass beta"),
        "registered tokens": f"{len(table):,}",
        "calibrated on": f"{made.get('images', '?')} unlabeled pictures, prompt {made.get('prompt', '?')!r}",
        "lens dtype": made.get("dtype", "?"),
        "fingerprint": f"`{table.fingerprint}`",
    }
    return CARD_TEXT.format(
        base=f"base_model: {model}\n" if on_hub else "",
        model=model,
        call=CALL.format(name=repo or "this-folder", table="" if repo else ', table="this-folder"'),
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
    )


CALL = 'model.generate(**inputs, custom_generate="{name}", trust_remote_code=True{table})'
CARD_TEXT = """\
---
library_name: transformers
{base}tags:
- custom_generate
- reweigh
- image-text-to-text
- hallucination
---

# ReWEIGH for {model}

A reference table for {model}. With it, the model names fewer objects that are not in the picture: words whose visual
evidence is below what is normal for them are suppressed while the model decodes. No training, no second forward pass.

```python
import reweigh  # pip install reweigh
from transformers import AutoModelForImageTextToText, AutoProcessor

model = AutoModelForImageTextToText.from_pretrained("{model}")
processor = AutoProcessor.from_pretrained("{model}")
inputs = ...  # from the processor: a prompt with a picture
{call}
```

`beta` is the maximum penalty in logits; 0 is the base model. The table is refused for any other model, tokenizer or image
processor.

| | |
|---|---|
{facts}
"""
