"""The recipe for photographs, for seconds: drawn scenes, tiny random parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

import reweigh
from reweigh import world
from reweigh.errors import InputError, MismatchError
from reweigh.families.prompts import build_inputs
from reweigh.files.artifacts import read_jsonl
from reweigh.world.scenes import scenes
from tools.training.grammar import describe
from tools.training.learning import LOG
from tools.training.photographs import lesson as lessons
from tools.training.photographs import prepare as preparing
from tools.training.photographs.__main__ import app
from tools.training.photographs.captions import read_captions, split_of, truth
from tools.training.photographs.lesson import CaptionLesson, trained
from tools.training.photographs.model import Captioner, start_in_closed_form
from tools.training.photographs.prepare import Parts

runner = CliRunner()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A random CLIP tower and a random Llama with the embedded model's tokenizer, as folders."""
    from transformers import AutoTokenizer, CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("parts")
    torch.manual_seed(0)
    small = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
    tower = CLIPVisionConfig(**small, num_hidden_layers=2, image_size=64, patch_size=16)
    CLIPVisionModel(tower).save_pretrained(folder / "vision")
    tokenizer = AutoTokenizer.from_pretrained(world.path())
    language = LlamaConfig(
        **small,
        num_hidden_layers=2,
        num_key_value_heads=2,
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(language).save_pretrained(folder / "language")
    tokenizer.save_pretrained(folder / "language")
    return Parts(str(folder / "vision"), str(folder / "language"), size=48)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Eighty drawn scenes with a caption file of Flickr8k's form."""
    folder = tmp_path_factory.mktemp("drawn")
    lines = []
    for number, one in enumerate(scenes("train", 80)):
        name = f"{number:03d}.png"
        one.image(48).save(folder / name)
        sentences = [s for s in describe(one).text.split(". ") if len(s.split()) > 2][:2]
        lines += [f"{name}#{k}\t{sentence} ." for k, sentence in enumerate(sentences)]
    captions = folder / "captions.token.txt"
    captions.write_text("\n".join(lines), "utf-8")
    return folder, captions


@pytest.fixture(scope="module")
def prepared(parts: Parts, drawn: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "prepared"
    preparing.prepare(folder, *drawn, parts)
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Flickr8k.token.txt", "a.jpg#0\tA dog 's ball , on grass .\na.jpg#1\tno\nb.jpg#0\ttwo  men run\n"),
        ("captions.txt", 'image,caption\na.jpg,"A dog \'s ball , on grass ."\nb.jpg,two men run\n'),
        (
            "captions_val.json",
            '{"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}], "annotations":'
            ' [{"image_id": 1, "caption": "A dog\'s ball, on grass"}, {"image_id": 2, "caption": "Two men run."}]}',
        ),
    ],
)
def test_every_caption_format_gives_the_same_sentences(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert read_captions(tmp_path / name) == {"a.jpg": ["A dog's ball, on grass."], "b.jpg": ["Two men run."]}


def test_the_truth_is_what_any_caption_names() -> None:
    found = truth({"a.jpg": ["Two boys throw a ball.", "Men with a phone."], "b.jpg": ["A puppies' bed."]})
    assert [line["objects"] for line in found] == [["cell phone", "person", "sports ball"], ["bed", "dog"]]
    assert found[0]["synonyms"]["dog"] == ["puppy", "puppies"]


def test_files_without_captions_are_refused_by_name(tmp_path: Path) -> None:
    for name, text in (("x.json", "[]"), ("x.txt", "\n"), ("y.json", '{"images": [{}]}')):
        (tmp_path / name).write_text(text, "utf-8")
        with pytest.raises(InputError, match=name):
            read_captions(tmp_path / name)


def test_a_packed_pass_is_every_caption_on_its_own(prepared: Path) -> None:
    """Twin: each caption alone after the picture, through the plain model without mask or positions."""
    lesson = CaptionLesson(prepared)
    rows = lesson.train[:3]
    features = torch.from_numpy(np.asarray(lesson.features[rows], np.float32))
    answers = [[lesson._answer(text) for text in lesson._captions(row)] for row in rows]
    with torch.no_grad():
        packed, count = lesson.module.loss(features, lesson.before, lesson.ask, answers)
        embed, alone, tokens = lesson.module.language.get_input_embeddings(), 0.0, 0
        for row, texts in enumerate(answers):
            seen = lesson.module.connector(features[row : row + 1])
            for answer in texts:
                start, rest = (
                    embed(torch.tensor([ids])) for ids in (lesson.before, lesson.ask + answer[:-1])
                )
                logits = lesson.module.language(inputs_embeds=torch.cat([start, seen, rest], 1)).logits[0]
                wanted = torch.tensor(answer)
                alone += float(F.cross_entropy(logits[-len(answer) :], wanted, reduction="sum"))
                tokens += len(answer)
    assert count == tokens
    assert float(packed) == pytest.approx(alone, rel=1e-5)


def test_a_hidden_unit_of_the_closed_form_detects_its_word(parts: Parts) -> None:
    """Pictures whose patches hold a direction, and bags that say which: the unit fires on these pictures only."""
    from tools.training.photographs.model import language_model

    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    bags = [{10 + k for k in range(8) if rng.random() < 0.4} for _ in range(60)]
    noise = rng.normal(0, 0.05, size=(60, 4, 8))
    features = (
        noise + np.stack([sum((directions[t - 10] for t in bag), np.zeros(8)) for bag in bags])[:, None]
    )
    module = Captioner(language_model(parts.language, 1300), 8)
    words = start_in_closed_form(module, features.astype(np.float32), bags)
    with torch.no_grad():
        fired = module.connector[:2](torch.from_numpy(features).float()).mean(1)
    assert sorted(words) == list(range(10, 18))
    for unit, word in enumerate(words):
        named = torch.tensor([word in bag for bag in bags])
        assert fired[named, unit].min() > fired[~named, unit].max()


def test_reading_resumes_where_it_was_stopped(
    parts: Parts, drawn: tuple[Path, Path], prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "BATCH", 4)
    real, calls = preparing.read_image, []

    def stopping(path: Path) -> object:
        calls.append(path)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return real(path)

    monkeypatch.setattr(preparing, "read_image", stopping)
    with pytest.raises(KeyboardInterrupt):
        preparing.prepare(tmp_path / "again", *drawn, parts)
    monkeypatch.setattr(preparing, "read_image", real)
    read = preparing.prepare(tmp_path / "again", *drawn, parts).features()
    np.testing.assert_allclose(read, preparing.load(prepared).features(), atol=2e-3)
    with pytest.raises(MismatchError, match="other pictures or parts"):
        preparing.prepare(tmp_path / "again", *drawn, Parts(parts.vision, parts.language, 32))


def test_training_learns_resumes_and_exports_what_every_command_takes(
    prepared: Path, drawn: tuple[Path, Path], tmp_path: Path
) -> None:
    lessons.train(prepared, steps=20, workers=1, every=10)
    lessons.train(prepared, steps=40, workers=1, every=10)
    rows = [row for row in read_jsonl(prepared / LOG) if "right" in row]
    assert [row["step"] for row in rows] == [0, 10, 20, 30]
    assert rows[-1]["right"] < rows[0]["right"]

    out = tmp_path / "llava"
    done = runner.invoke(app, ["export", str(prepared), "-o", str(out)])
    assert done.exit_code == 0, done.output
    model, processor = reweigh.load(str(out))
    lesson = trained(prepared)
    picture = drawn[0] / lesson.prepared.names[0]
    inputs = build_inputs(model, processor, [preparing.read_image(picture)], ["Describe this image."])
    lesson.module.merge()
    with torch.no_grad():
        seen = model.get_image_features(pixel_values=inputs["pixel_values"])
        ours = lesson.module.connector(torch.from_numpy(np.asarray(lesson.features[:1], np.float32)))
        ids = [lesson.before, lesson.ask]
        embed = lesson.module.language.get_input_embeddings()
        whole = torch.cat([embed(torch.tensor([ids[0]])), ours, embed(torch.tensor([ids[1]]))], 1)
        expected = lesson.module.language(inputs_embeds=whole).logits[0, -1]
        found = model(**inputs).logits[0, -1]
    seen = getattr(seen, "pooler_output", seen)
    torch.testing.assert_close(torch.as_tensor(seen[0]).reshape(ours.shape), ours, atol=5e-3, rtol=0)
    torch.testing.assert_close(found, expected, atol=5e-3, rtol=0)

    listed = tmp_path / "list.txt"
    listed.write_text(str(picture), "utf-8")
    sheet = tmp_path / "sheet.png"
    done = runner.invoke(app, ["check", str(out), str(listed), "-o", str(sheet)])
    assert done.exit_code == 0, done.output
    assert picture.name in done.output
    assert sheet.is_file()


def test_every_picture_is_seen_once_in_an_epoch(prepared: Path) -> None:
    lesson = CaptionLesson(prepared, batch=1)
    count = len(lesson.train)
    assert sorted(lesson._rows(n)[0] for n in range(count)) == lesson.train
    assert all(split_of(lesson.prepared.names[row]) == "train" for row in lesson.train)
