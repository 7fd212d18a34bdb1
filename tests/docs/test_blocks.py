"""Every code block of README and docs runs as printed, page by page, in a folder with the files a reader would have.

Released weights are stood in for by small random checkpoints of the same family and depth. A comment above a block says
why it is not run (``<!-- not run: reason -->``), or that it takes too long for every run (``<!-- full: reason -->``).
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from blocks import PAGES, ROOT, Block, commands, read_blocks
from typer.testing import CliRunner

from reweigh.cli.app import app
from tools.bench.__main__ import app as bench
from tools.training.__main__ import app as training

LANGUAGES = {"python", "sh", "json", "toml", "text", "bibtex", "nginx"}
RELEASED = {"llava-hf/llava-1.5-7b-hf": ("llava", 32)}
"""Released checkpoints that documents name: the family and depth of their stand-in."""
DTYPES = ("float16", "bfloat16")
FILE = re.compile(r"# (\w+\.py)\n")
"""First line of a block that is a file of the reader's."""
BLOCKS = [block for page in PAGES for block in read_blocks(page)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_says_what_it_is(block: Block) -> None:
    assert block.language in LANGUAGES, "name the language behind the fence"
    if block.language == "json":
        json.loads(block.code)
    if block.language == "toml":
        tomllib.loads(block.code)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Folders of small checkpoints by the name of the released one."""
    from checkpoints.deep import build_deep
    from reweigh.families.load import load

    folder, found = tmp_path_factory.mktemp("released"), {}
    for name, (family, blocks) in RELEASED.items():
        made = build_deep(family, blocks, folder / family)
        for dtype in DTYPES:  # released checkpoints are stored in 16 bits
            found[name, dtype] = shutil.copytree(made, folder / f"{family}-{dtype}")
            load(made, dtype=dtype, device="cpu")[0].save_pretrained(found[name, dtype])
    return found


@pytest.fixture
def desk(tmp_path, monkeypatch, stand_ins, request, sandbox):
    """The reader's folder: pictures under the names the documents use; released names lead to stand-ins."""
    dtype = getattr(request, "param", DTYPES[0])
    import transformers

    from reweigh.world.pictures import write_boxes
    from reweigh.world.scenes import scenes

    (tmp_path / "my-images").mkdir()
    for number, scene in enumerate(scenes("calibration", 8, 0)):
        scene.image().save(tmp_path / "my-images" / f"{number}.png")
    scene.image().convert("RGB").save(tmp_path / "dog.jpg")
    write_boxes(scenes("evaluation", 4, 0), tmp_path / "test-images")
    monkeypatch.chdir(tmp_path)
    for name in ("AutoConfig", "AutoModelForImageTextToText", "AutoProcessor"):
        kind = getattr(transformers, name)
        load = kind.from_pretrained

        def instead(where, *args, _load=load, **kwargs):
            return _load(stand_ins.get((str(where), dtype), where), *args, **kwargs)

        monkeypatch.setattr(kind, "from_pretrained", instead)
    return tmp_path


def run_page(page: Path, marks: set[str | None], blocks: list[Block] | None = None) -> int:
    names: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for block in read_blocks(page) if blocks is None else blocks:
        if block.language not in ("python", "sh") or block.mark not in marks:
            continue
        count += 1
        if (named := FILE.match(block.code)) is not None:
            Path(named[1]).write_text(block.code)
            continue
        if block.language == "python":
            exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
            continue
        for words in commands(block.code):
            run_command(words, block)
    return count


def run_command(words: list[str], block: Block) -> None:
    known = {
        ("reweigh",): app,
        ("python", "-m", "tools.training"): training,
        ("python", "-m", "tools.bench"): bench,
    }
    name = next((name for name in known if tuple(words[: len(name)]) == name), None)
    assert name is not None, f"{block}: {words[0]!r} is not a command of this repository; mark the block"
    done = CliRunner().invoke(known[name], words[len(name) :])
    assert done.exit_code == 0, f"{block}: {' '.join(words)}\n{done.output}\n{done.exception!r}"


RUNNING = [
    page
    for page in PAGES
    if any(block.language in ("python", "sh") and block.mark is None for block in read_blocks(page))
]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_runs_as_printed(page: Path, desk: Path) -> None:
    assert run_page(page, {None}) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("desk", "fast"), [("float16", False), ("bfloat16", True)], indirect=["desk"])
def test_commands_and_programs_load_a_released_model_alike(
    desk: Path, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "usage.md"
    known = {"avx512_bf16": fast, "avx512_fp16": fast}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    blocks = [block for block in read_blocks(page) if any(name in block.code for name in RELEASED)]
    assert {"python", "sh"} <= {block.language for block in blocks}
    assert run_page(page, {None}, blocks) > 0


LONG = [page for page in PAGES if any(block.mark == "full" for block in read_blocks(page))]


@pytest.mark.full
@pytest.mark.parametrize("page", LONG, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_runs_in_full(page: Path, desk: Path) -> None:
    assert run_page(page, {None, "full"}) > 0


def test_the_runner_can_fail(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_page(page, {None})
    page.write_text("<!-- not run: it fails -->\n```python\nassert False\n```\n")
    assert run_page(page, {None}) == 0
    shutil.rmtree(tmp_path)
