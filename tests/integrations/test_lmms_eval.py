"""Against the real lmms-eval: its registry finds us, its own loop generates through us.

lmms-eval pulls a CUDA build through torchvision if installed whole; it is tested in an environment of its own, where it is
installed without dependencies. Elsewhere these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from reweigh.calibration.calibrate import calibrate
from reweigh.families.anatomy import find_anatomy
from reweigh.families.load import load

pytest.importorskip(
    "lmms_eval", reason="lmms-eval is not installed (docs/evaluate.md says how to install it)"
)

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def model(checkpoint: Callable[..., Path]) -> str:
    return str(checkpoint("llava"))


@pytest.fixture(scope="module")
def table(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("table")
    pictures = folder / "pictures"
    pictures.mkdir()
    for i in range(4):
        Image.effect_noise((64, 64), 40 + 30 * i).convert("RGB").save(pictures / f"{i}.png")
    loaded, processor = load(model, device="cpu")
    calibrate(loaded, processor, pictures, layers=[-1], out=folder / "table", max_new_tokens=8)
    return str(folder / "table")


def base_of(made: Any) -> Any:
    """The class of lmms-eval that writes the prompts."""
    return type(made).__mro__[2]


def ask(made: Any, kind: Any = None) -> list[str]:
    """Put two questions to a model in lmms-eval's own form, by its own loop or by that of another class."""
    from lmms_eval.api.instance import Instance

    pictures = [Image.linear_gradient("L").resize((64, 64)).convert("RGB") for _ in range(2)]
    for i, picture in enumerate(pictures):
        picture.paste((200 * i, 20, 90), (0, 0, 30, 30))

    def messages(doc: dict[str, Any]) -> list[dict[str, Any]]:
        content = [{"type": "image", "url": doc["image"]}, {"type": "text", "text": "What is this?"}]
        return [{"role": "user", "content": content}]

    made.task_dict = {"toy": {"test": [{"image": picture} for picture in pictures]}}
    requests = [
        Instance(
            request_type="generate_until",
            arguments=("What is this?", messages, {"max_new_tokens": 12}, i, "toy", "test"),
            idx=0,
            metadata={"task": "toy", "doc_id": i, "repeats": 1},
        )
        for i in range(2)
    ]
    answers = (kind or type(made)).generate_until(made, requests)
    return [str(getattr(answer, "text", answer)) for answer in answers]


def test_the_registry_finds_the_model() -> None:
    from lmms_eval.models import get_model

    from reweigh.integrations.lmms_eval_model import ReweighModel

    assert get_model("reweigh") is ReweighModel


@pytest.mark.slow
def test_the_edit_acts_and_beta_zero_is_the_base(model: str, table: str) -> None:
    from lmms_eval.models import get_model
    from lmms_eval.models.chat import huggingface

    reweigh_model = get_model("reweigh")
    bare = huggingface.AutoModel
    zero = reweigh_model(pretrained=model, table=table, beta=0)
    edited = reweigh_model.create_from_arg_string(
        f"pretrained={model},table={table},beta=20", {"device": "cpu", "batch_size": 1}
    )
    assert huggingface.AutoModel is bare
    assert edited.session.beta == 20
    assert edited.session.table.fingerprint == zero.session.table.fingerprint
    # The base is the same loop without a session around it.
    assert base_of(zero) is huggingface.Huggingface
    assert zero.model.dtype == torch.float32  # the checkpoint's own, where lmms-eval says bfloat16
    base = ask(zero, huggingface.Huggingface)
    assert ask(zero) == base
    answers = ask(edited)
    assert answers != base
    # Nothing stays behind in the model: outside the loop it is the base again.
    assert ask(edited, huggingface.Huggingface) == base
    assert ask(edited) == answers


@pytest.mark.slow
@pytest.mark.parametrize("base", ["llava_hf", "internvl_hf", "qwen2_5_vl"])
def test_lmms_evals_own_models_write_the_prompts(
    base: str, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    from reweigh.integrations.lmms_eval_model import ReweighModel

    family = {"llava_hf": "llava", "internvl_hf": "internvl", "qwen2_5_vl": "qwen2_5_vl"}[base]
    if family != "llava":
        pytest.importorskip("torchvision", reason="lmms-eval's model needs torchvision")
    own = str(checkpoint(family))
    loaded, processor = load(own, device="cpu")
    pictures = [Image.effect_noise((64, 64), 40 + 30 * i).convert("RGB") for i in range(4)] * 2
    settings = {}
    if family == "qwen2_5_vl":
        size = processor.image_processor.size
        settings = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    calibrate(loaded, processor, pictures, layers=[-1], out=tmp_path / "table", max_new_tokens=8)
    shared = {"base": base, "pretrained": own, "table": str(tmp_path / "table"), **settings}
    zero, edited = ReweighModel(**shared, beta=0), ReweighModel(**shared, beta=20)
    upstream = base_of(zero)
    assert upstream.__module__ == f"lmms_eval.models.chat.{base}"
    plain = ask(zero, upstream)
    assert ask(zero) == plain
    assert ask(edited) != plain
    half = ReweighModel(**shared, decoder="base", dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16


@pytest.mark.slow
def test_an_error_while_generating_ends_the_program(model: str, table: str) -> None:
    """lmms-eval's LLaVA answers with an empty text where anything fails, which would be scored."""
    from reweigh.integrations.lmms_eval_model import ReweighModel

    made = ReweighModel(base="llava_hf", pretrained=model, table=table, beta=20)
    norm = find_anatomy(made.model).norm
    removed = norm.register_forward_pre_hook(lambda module, args: (args[0][:, -1:],))
    with pytest.raises(SystemExit, match="stream after block"):
        ask(made)
    removed.remove()
    assert "generate" not in vars(made.model)


@pytest.mark.slow
def test_batches_answer_like_single_questions(model: str, table: str) -> None:
    from reweigh.integrations.lmms_eval_model import ReweighModel

    single, batched = (
        ReweighModel(pretrained=model, table=table, beta=20, batch_size=size) for size in (1, 2)
    )
    assert len(ask(batched)) == len(ask(single)) == 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "reference table"),
        ({"table": "x", "dtype": "float8"}, "float8"),
        ({"table": "x", "base": "llava_fh"}, "llava_hf"),
    ],
)
def test_what_is_wrong_is_reported_before_loading(wrong: dict[str, Any], told: str) -> None:
    """As SystemExit: lmms-eval reports any other error and exits with 0."""
    from reweigh.integrations.lmms_eval_model import ReweighModel

    with pytest.raises(SystemExit, match=told):
        ReweighModel(pretrained="/nowhere", **wrong)


@pytest.mark.slow
def test_a_rival_runs_too(model: str) -> None:
    from reweigh.integrations.lmms_eval_model import ReweighModel

    assert len(ask(ReweighModel(decoder="dola", pretrained=model))) == 2


TASK = """
dataset_path: parquet
dataset_kwargs:
  data_files:
    test: {data}
task: toy_local
test_split: test
output_type: generate_until
doc_to_visual: !function toy_task.doc_to_visual
doc_to_text: "question"
doc_to_target: "answer"
generation_kwargs:
  max_new_tokens: 12
  temperature: 0
process_results: !function toy_task.process
metric_list:
  - metric: said
    aggregation: mean
    higher_is_better: true
metadata:
  version: 0.0
"""
FUNCTIONS = """
def doc_to_visual(doc):
    return [doc["image"].convert("RGB")]

def process(doc, results):
    return {"said": float(len(str(results[0])) > 0)}
"""


@pytest.mark.slow
def test_the_command_runs_a_task(model: str, table: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="lmms-eval's command needs datasets")
    pytest.importorskip("pytablewriter", reason="lmms-eval's command needs pytablewriter")
    images = [Image.linear_gradient("L").resize((64, 64)).convert("RGB")]
    rows = {"image": images, "question": ["What is this?"], "answer": ["x"]}
    features = {
        "image": datasets.Image(),
        "question": datasets.Value("string"),
        "answer": datasets.Value("string"),
    }
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    made.to_parquet(str(tmp_path / "test.parquet"))
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "toy.yaml").write_text(TASK.format(data=tmp_path / "test.parquet"))
    (tmp_path / "task" / "toy_task.py").write_text(FUNCTIONS)
    command = [
        sys.executable,
        "-m",
        "lmms_eval",
        "--model",
        "reweigh",
        "--tasks",
        "toy_local",
        "--log_samples",
    ]
    command += [
        "--model_args",
        f"pretrained={model},table={table},beta=20",
        "--include_path",
        str(tmp_path / "task"),
    ]
    command += ["--batch_size", "1", "--output_path", str(tmp_path / "out")]
    offline = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=offline, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (results,) = [path for path in (tmp_path / "out").rglob("*results*.json")]
    assert json.loads(results.read_text())["results"]["toy_local"]["said,none"] == 1.0


def test_the_manifest_is_light() -> None:
    code = (
        "import sys, json; import reweigh.integrations.lmms_eval as m; "
        "print(json.dumps(['torch' in sys.modules, m.CLASS]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, "reweigh.integrations.lmms_eval_model.ReweighModel"]
