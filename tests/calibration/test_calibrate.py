"""Calibration against a plain loop, and through everything that can go wrong on the way."""

from __future__ import annotations

import copy
import io
import shutil
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image

import reweigh
import twin
from checkpoints import FAMILIES, load, picture
from reweigh.calibration import ahead
from reweigh.calibration.result import Calibration, merge_shards, tables_of
from reweigh.errors import (
    ArtifactError,
    CalibrationError,
    InputError,
    MismatchError,
    NumericsError,
    ReweighError,
)
from reweigh.files.artifacts import only_one
from reweigh.job import MANIFEST, RECORD, ROWS, Job
from reweigh.tables.observations import ImageObservations, collect

pytestmark = pytest.mark.numerics

STEPS = 6
PAIRS = [(f"{name}.png", picture(number, (56 + 9 * number, 50))) for number, name in enumerate("cab")]


@pytest.fixture(scope="module")
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.fixture(scope="module")
def whole(llava, tmp_path_factory):
    """An undisturbed run and its folder."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return run(llava, out=out), out


def run(case, images=PAIRS, **options):
    options = {"layers": [1, -1], "max_new_tokens": STEPS, "show": False, **options}
    return reweigh.calibrate(case.model, case.processor, images, **options)


def tree(folder):
    """Every file below a folder, with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def multisets(calibration, layer):
    """{(image, token): [value] * count}, from the arrays."""
    found = calibration.observations
    values = found.values[found.layers.index(layer)]
    rows = zip(found.image, found.token, found.count, values, strict=True)
    return {(found.images[i].partition("#")[0], int(t)): [float(v)] * int(n) for i, t, n, v in rows}


def plain(case, name, image, layer, steps=STEPS):
    """The same from transformers' own generate, one image at a time."""
    inputs = dict(case.processor(text=[twin.prompt(case.processor)], images=[image], return_tensors="pt"))
    dmrr = twin.evidence(case.model, inputs, layer)[0]
    with torch.no_grad():
        output = case.model.generate(
            **inputs, do_sample=False, max_new_tokens=steps, output_logits=True, return_dict_in_generate=True
        )
    found = {}
    for logits in output.logits:
        for token in twin.candidates(logits[0].float().numpy()):
            found.setdefault((name, token), []).append(dmrr[token])
    return found


def check_against_twin(case, calibration, pairs, layer):
    expected = {}
    for name, image in pairs:
        expected |= plain(case, name, image, layer)
    found = multisets(calibration, layer)
    assert {key: len(values) for key, values in found.items()} == {
        key: len(values) for key, values in expected.items()
    }
    for key, values in found.items():
        assert values == pytest.approx(expected[key], rel=1e-5)


@pytest.mark.parametrize("layer", [1, 3])
def test_observations_equal_a_plain_loop(llava, whole, layer):
    check_against_twin(llava, whole[0], PAIRS, layer)
    assert len(whole[0].observations) >= 2 * STEPS * len(PAIRS)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_observations_of_every_family_equal_a_plain_loop(checkpoint, family):
    case = twin.case(checkpoint(family))
    check_against_twin(case, run(case, layers=[2]), PAIRS, 2)


def test_steps_after_the_end_token_do_not_count(llava, whole):
    """Rows of a batch end at different steps; each is observed to its own end, as it is alone."""
    case = twin.Case(llava.family, llava.model, llava.processor)
    inputs = [
        dict(case.processor(text=[twin.prompt(case.processor)], images=[p], return_tensors="pt"))
        for _, p in PAIRS
    ]
    with torch.no_grad():
        texts = [
            case.model.generate(**one, do_sample=False, max_new_tokens=STEPS)[0, -STEPS:] for one in inputs
        ]
    end = int(texts[0][2])  # the first image now ends at its third step at the latest
    before = case.model.generation_config.eos_token_id
    case.model.generation_config.eos_token_id = end
    try:
        batched, alone = run(case, batch_size=3), run(case, batch_size=1)
    finally:
        case.model.generation_config.eos_token_id = before
    assert len(alone.observations) < len(whole[0].observations)
    for name in ("image", "token", "count"):
        assert np.array_equal(getattr(batched.observations, name), getattr(alone.observations, name))


def test_batches_see_the_same_candidates(llava, whole):
    batched = run(llava, batch_size=3).observations
    alone = whole[0].observations
    for name in ("image", "token", "count"):
        assert np.array_equal(getattr(batched, name), getattr(alone, name))
    # padding changes rounding, and so now and then a rank
    assert np.allclose(batched.values, alone.values, rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_batches_of_every_family_see_the_same_candidates(checkpoint, family):
    case = twin.case(checkpoint(family))
    batched, alone = (run(case, layers=[2], batch_size=size).observations for size in (3, 1))
    for name in ("image", "token", "count"):
        assert np.array_equal(getattr(batched, name), getattr(alone, name))
    assert np.allclose(batched.values, alone.values, rtol=0.1)


def test_several_layers_in_one_run_equal_separate_runs(llava, whole):
    together = whole[0]
    for layer in (1, 3):
        apart = run(llava, layers=[layer])
        assert np.array_equal(apart.observations.values[0], together.observations.at([layer]).values[0])
        mine, theirs = apart.tables[layer], together.tables[layer]
        assert mine.b0 == theirs.b0
        assert np.array_equal(mine.tokens, theirs.tokens)
        assert np.array_equal(mine.references, theirs.references)


def shards_of(case, folder, images, count, **options):
    folders = [folder / f"shard-{number}" for number in range(1, count + 1)]
    for number, one in enumerate(folders, start=1):
        run(case, images, out=one, shard=f"{number}/{count}", **options)
    return folders


def test_shards_merge_to_the_bytes_of_the_whole_in_any_order(llava, tmp_path):
    images = [("z.png", Image.new("RGB", (1, 1))), *PAIRS]
    shards = shards_of(llava, tmp_path, images, 3)
    merge_shards(shards, tmp_path / "merged")
    merge_shards(shards[::-1], tmp_path / "reversed")
    one = run(llava, images, out=tmp_path / "whole")
    assert [skip["name"] for skip in one.skipped] == ["z.png"]
    assert tree(tmp_path / "merged") == tree(tmp_path / "reversed") == tree(tmp_path / "whole")


def test_a_merge_without_all_shards_says_so_and_can_be_finished(llava, whole, tmp_path):
    first, *_ = shards_of(llava, tmp_path, PAIRS, 2)
    with pytest.raises(InputError, match="1 of 3 batches"):
        merge_shards([first], tmp_path / "out")
    run(llava, out=tmp_path / "out")
    assert tree(tmp_path / "out") == tree(whole[1])


def test_merging_keeps_the_shards_rule_and_refuses_other_settings(llava, tmp_path):
    options = {"layers": [1], "rule": "count-2"}
    counted = shards_of(llava, tmp_path / "counted", PAIRS, 3, **options)
    merged = merge_shards(counted, tmp_path / "out")
    assert merged.tables[1].compare(run(llava, **options).tables[1])["equal"]
    stable = shards_of(llava, tmp_path / "stable", PAIRS, 3, layers=[1])
    with pytest.raises(MismatchError, match="rule"):
        merge_shards([stable[0], counted[1]], tmp_path / "no")
    short = shards_of(llava, tmp_path / "short", PAIRS, 3, **options, max_new_tokens=2)
    with pytest.raises(MismatchError, match="max_new_tokens"):
        merge_shards([counted[1], short[0]], tmp_path / "nor")
    with pytest.raises(InputError, match="merge"):
        merge_shards([], tmp_path / "no")


def test_shards_of_a_model_called_otherwise_elsewhere_merge(llava, whole, tmp_path, monkeypatch):
    run(llava, out=tmp_path / "1", shard="1/2")
    monkeypatch.setattr(llava.model, "name_or_path", "/another/place")
    run(llava, out=tmp_path / "2", shard="2/2")
    merge_shards([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    assert tree(tmp_path / "out") == tree(whole[1])


def test_a_finished_run_is_returned_untouched(llava, whole, monkeypatch):
    calibration, out = whole
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    monkeypatch.setattr(type(llava.model), "generate", kill)
    again = run(llava, out=out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert {layer: table.fingerprint for layer, table in again.tables.items()} == {
        layer: table.fingerprint for layer, table in calibration.tables.items()
    }


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"layers": [2]}, r"about.layers \(\[1, 3\]; now \[2\]\)"),
        ({"max_new_tokens": 3}, r"about.max_new_tokens \(6; now 3\)"),
        ({"batch_size": 2}, "about.batch_size"),
        ({"dtype": "float32"}, "about.lens"),
        ({"chunk": 7}, "about.chunk"),
        ({"prompt": "What?"}, "about.prompt"),
        ({"template": "USER: <image>\n{prompt} ASSISTANT:"}, "about.prompt_sha256"),
        ({"rule": "count-5"}, r"rule \('stable'; now 'count-5'\)"),
        ({"images": PAIRS[:2]}, "corpus"),
        ({"images": [*PAIRS, ("d.png", picture(7))]}, "corpus"),
        ({"images": [*PAIRS[:2], ("b.png", picture(7))]}, "corpus"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_in_the_same_folder_are_refused_by_name(
    llava, whole, tmp_path, monkeypatch, change, key, finished
):
    out = whole[1]
    if not finished:
        out = tmp_path
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(type(llava.model), "generate", kill)
            run(llava, out=out)
    before = tree(out)
    with pytest.raises(MismatchError, match=f"different {key}"):
        run(llava, out=out, **change)
    assert tree(out) == before


class Killed(BaseException):
    """As if the process had ended here."""


def kill(*_args, **_kwargs):
    raise Killed


def test_killed_again_and_again_it_resumes_and_ends_with_the_same_bytes(llava, whole, tmp_path):
    for number in (1, 2, 2, 2, 3, 2):  # at the record, at rows, at the manifest, then amid the tables
        with pytest.MonkeyPatch.context() as patch:
            assert not die_at(patch, llava, tmp_path, number)
    run(llava, out=tmp_path)
    assert tree(tmp_path) == tree(whole[1])


@pytest.mark.slow
def test_killed_at_any_file_it_resumes_and_ends_with_the_same_bytes(llava, whole, tmp_path):
    expected = tree(whole[1])
    kills = 0
    for number in range(1, 20):
        out = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as patch:
            done = die_at(patch, llava, out, number)
        kills += not done
        run(llava, out=out)
        assert tree(out) == expected
        if done:
            break
    # a record, the first rows, rows in order, a manifest, two tables
    assert kills == 4 + 2


def test_files_of_others_survive_a_calibration(llava, whole, tmp_path):
    theirs = [".film.mp4.x.part", ".work/thesis.tex", "parts/notes.txt", "deep/.er/.half.part"]
    for name in theirs:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    run(llava, out=tmp_path)
    left = tree(tmp_path)
    assert all(left.pop(name) == b"mine" for name in theirs)
    assert left == tree(whole[1])


@pytest.mark.parametrize("name", [ROWS, MANIFEST, "layer-3.safetensors"])
def test_what_a_calibration_would_replace_stops_it_before_it_begins(llava, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="exists"):
        run(llava, out=tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / RECORD).exists()


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_killed_between_batches_it_observes_only_the_others(llava, whole, tmp_path, monkeypatch, batches):
    generate, calls = type(llava.model).generate, []

    def counted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == batches:
            raise Killed
        return generate(self, *args, **kwargs)

    monkeypatch.setattr(type(llava.model), "generate", counted)
    with pytest.raises(Killed):
        run(llava, out=tmp_path)
    run(llava, out=tmp_path)
    assert len(calls) == 3 + 1
    assert tree(tmp_path) == tree(whole[1])


def test_a_second_calibration_in_one_folder_names_the_first(llava, tmp_path):
    with only_one(tmp_path), pytest.raises(InputError, match="process"):
        run(llava, out=tmp_path)


def die_at(patch, case, out, number):
    """Run until the n-th file is about to get its name; whether the run ended before that."""
    from pathlib import Path

    rename, left = Path.replace, [number]

    def dying(self, target):
        left[0] -= 1
        if left[0] == 0:
            patch.setattr(Path, "unlink", kill)  # a killed process cleans nothing up
            raise Killed
        return rename(self, target)

    patch.setattr(Path, "replace", dying)
    try:
        run(case, out=out)
    except Killed:
        return False
    return True


@pytest.mark.parametrize("number", [1, 3, 5, 8])
def test_a_full_disk_keeps_finished_parts_and_leaves_nothing_half_written(
    llava, whole, tmp_path, monkeypatch, number
):
    import os
    import stat

    fsync, left = os.fsync, [number]

    def full(handle):
        left[0] -= stat.S_ISREG(os.fstat(handle).st_mode)  # folders are synced too
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ArtifactError, match="No space left"):
            run(llava, out=tmp_path)
    left_there = tree(tmp_path)
    assert not any(name.endswith(".part") for name in left_there)
    assert MANIFEST not in left_there or number > 6
    kept = lines(tmp_path / ROWS)
    assert min(max(number - 2, 0), 3) <= kept <= min(number, 3)
    calls = []
    generate = type(llava.model).generate
    with monkeypatch.context() as patch:
        patch.setattr(
            type(llava.model), "generate", lambda self, *a, **k: calls.append(1) or generate(self, *a, **k)
        )
        run(llava, out=tmp_path)
    assert len(calls) == 3 - kept
    assert tree(tmp_path) == tree(whole[1])


def test_a_saved_calibration_comes_back(whole):
    calibration, out = whole
    found = Calibration.load(out)
    assert found.about == calibration.about
    for name in ("layers", "images", "image", "token", "count", "values"):
        assert np.array_equal(getattr(found.observations, name), getattr(calibration.observations, name))
    made = found.tables[1].about
    assert made["images"] == 3
    assert made["identity"]["architecture"] == "LlavaForConditionalGeneration"
    assert made["candidates"] == {"mass": 0.9, "least": 2, "most": 50}


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_damaged_calibration_is_refused(whole, tmp_path):
    import shutil

    for name in (RECORD, ROWS, "layer-3.safetensors"):
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(whole[1], folder)
        data = bytearray((folder / name).read_bytes())
        data[data.find(b"corpus") if name == RECORD else -9] ^= 1
        (folder / name).write_bytes(bytes(data))
        with pytest.raises(ArtifactError, match="altered"):
            Calibration.load(folder)
        (folder / name).unlink()
        if name in (RECORD, ROWS):  # a table that is missing is registered again
            with pytest.raises((ArtifactError, InputError)):
                Calibration.load(folder)


def test_unreadable_images_are_named_skipped_and_counted(llava, whole, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for name, image in PAIRS:
        image.save(folder / name)
    stream = io.BytesIO()
    picture(0, (300, 300)).save(stream, "JPEG")
    (folder / "cut.jpg").write_bytes(stream.getvalue()[:-700])
    (folder / "empty.png").write_bytes(b"")
    Image.new("1", (10_000, 5_000)).save(folder / "huge.png")
    Image.new("RGB", (1, 1)).save(folder / "dot.png")
    told = []
    done = run(
        llava,
        folder,
        out=tmp_path / "out",
        on_skip=lambda name, reason: told.append((name, reason)),
        batch_size=2,
    )
    assert [skip["name"] for skip in done.skipped] == ["cut.jpg", "dot.png", "empty.png", "huge.png"]
    assert sorted(told) == [(skip["name"], skip["reason"]) for skip in done.skipped]
    assert len(done.observations.images) == 3
    assert [len(done.observations), len(whole[0].observations)] == [len(whole[0].observations)] * 2
    assert Calibration.load(tmp_path / "out").skipped == done.skipped
    assert run(llava, folder, out=tmp_path / "out", batch_size=2).skipped == done.skipped


def test_a_mended_image_makes_another_corpus(llava, tmp_path):
    (tmp_path / "a.png").write_bytes(b"broken")
    PAIRS[0][1].save(tmp_path / "b.png")
    run(llava, tmp_path, out=tmp_path / "out")
    PAIRS[1][1].save(tmp_path / "a.png")
    with pytest.raises(MismatchError, match="corpus"):
        run(llava, tmp_path, out=tmp_path / "out")


def test_images_of_impossible_shapes_are_skipped(checkpoint):
    case = twin.case(checkpoint("qwen2_5_vl"))
    thin = Image.new("RGB", (900, 2))
    for batch_size in (1, 3):
        done = run(case, [PAIRS[0], ("thin.png", thin), PAIRS[1]], batch_size=batch_size, layers=[1])
        assert [skip["name"] for skip in done.skipped] == ["thin.png"]
        assert "900x2" in done.skipped[0]["reason"]
        assert len(done.observations.images) == 2


@pytest.mark.parametrize("batch_size", [1, 2])
def test_the_number_of_readers_changes_no_byte(llava, tmp_path, monkeypatch, batch_size):
    images = tmp_path / "images"
    images.mkdir()
    for name, image in PAIRS:
        image.save(images / name)
    (images / "broken.png").write_bytes(b"no image")
    Image.new("RGB", (1, 1)).save(images / "ab.png")
    trees, told = [], []
    for readers in (1, 2, 7):
        monkeypatch.setattr(ahead, "READERS", readers)
        skips = []
        out = tmp_path / str(readers)
        run(llava, images, out=out, batch_size=batch_size, on_skip=lambda *skip, to=skips: to.append(skip))
        trees.append(tree(out))
        told.append(skips)
    assert trees[0] == trees[1] == trees[2]
    assert told[0] == told[1] == told[2]
    assert [name for name, _ in told[0]] == ["ab.png", "broken.png"]


def test_an_interrupt_keeps_finished_batches_and_leaves_no_thread(llava, whole, tmp_path, monkeypatch):
    generate, calls = type(llava.model).generate, []

    def interrupted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return generate(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(type(llava.model), "generate", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            run(llava, out=tmp_path)
        # ended by the run itself: the traceback still holds all it had
        assert caught.traceback
        names = [thread.name for thread in threading.enumerate()]
        assert [name for name in names if name.startswith(("reweigh-read", "reweigh-build"))] == []
    assert lines(tmp_path / ROWS) == 1
    run(llava, out=tmp_path)
    assert tree(tmp_path) == tree(whole[1])


def test_an_error_of_the_processor_comes_in_its_turn_and_names_the_image(llava, tmp_path, monkeypatch):
    processor = type(llava.processor)
    call, calls = processor.__call__, []

    def failing(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("a fault of its own")
        return call(self, *args, **kwargs)

    monkeypatch.setattr(processor, "__call__", failing)
    with pytest.raises(CalibrationError, match=r"b\.png"):
        run(llava, out=tmp_path)
    assert lines(tmp_path / ROWS) == 2


def test_no_readable_image_is_refused(llava, tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "b.png").write_bytes(b"x")
    with pytest.raises(CalibrationError, match=r"a\.png"):
        run(llava, tmp_path)


def test_an_empty_folder_is_refused(llava, tmp_path):
    with pytest.raises(InputError, match="no image"):
        run(llava, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": [4]}, "layer 4"),
        ({"layers": [-5]}, "layer -5"),
        ({"layers": []}, "layer"),
        ({"layers": [True]}, "True"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"max_new_tokens": 0}, "max_new_tokens 0"),
        ({"rule": "best"}, "'best'"),
        ({"dtype": "int8"}, "int8"),
        ({"chunk": 0}, "chunk"),
        ({"template": "no place"}, "prompt"),
        ({"template": "USER: {prompt}"}, "no image"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(llava, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        run(llava, out=tmp_path / "out", **options)
    assert set(tree(tmp_path / "out")) <= {RECORD, ".lock"}


def test_a_processor_without_chat_template_says_what_to_give(checkpoint):
    case = twin.case(checkpoint("llava", bare=True))
    with pytest.raises(InputError, match="chat template") as caught:
        run(case)
    assert "template=" in str(caught.value)
    assert len(run(case, template="USER: <image>\n{prompt} ASSISTANT:", layers=[1]).observations) > 0


def test_nan_in_the_logits_is_refused(checkpoint):
    from checkpoints import load

    model, processor = load(checkpoint("llava"))
    with torch.no_grad():
        model.lm_head.weight[5] = float("nan")
    with pytest.raises(NumericsError, match="NaN"):
        reweigh.calibrate(model, processor, PAIRS, max_new_tokens=2, show=False)


def test_the_users_generation_config_does_not_disturb(llava, whole):
    before = llava.model.generation_config
    theirs = llava.model.generation_config = copy.deepcopy(before)
    theirs.update(do_sample=True, temperature=0.3, top_k=5, prefill_chunk_size=7, num_return_sequences=2)
    try:
        disturbed = run(llava)
    finally:
        llava.model.generation_config = before
    assert np.array_equal(disturbed.observations.values, whole[0].observations.values)
    assert np.array_equal(disturbed.observations.count, whole[0].observations.count)


@pytest.fixture
def penalised(llava):
    """The model with a repetition penalty of its checkpoint's own."""
    before = llava.model.generation_config
    llava.model.generation_config = copy.deepcopy(before)
    llava.model.generation_config.update(repetition_penalty=1.4, suppress_tokens=(7, 8))
    yield llava
    llava.model.generation_config = before


def test_generation_settings_that_change_the_texts_are_part_of_the_record(penalised, whole, tmp_path):
    calibration, out = whole
    assert "generation" not in calibration.about
    with pytest.raises(MismatchError, match="repetition_penalty"):
        run(penalised, out=out)
    changed = run(penalised, out=tmp_path)
    assert changed.about["generation"] == {"repetition_penalty": 1.4, "suppress_tokens": [7, 8]}
    assert changed.tables[1].about["generation"] == changed.about["generation"]
    for again in (
        Calibration.load(tmp_path),
        run(penalised, out=tmp_path),
    ):  # read from the record it is the same
        assert again.about == changed.about
        assert again.tables[1].fingerprint == changed.tables[1].fingerprint
    penalised.model.generation_config.repetition_penalty = 1.2
    with pytest.raises(MismatchError, match="repetition_penalty"):
        run(penalised, out=tmp_path)


def test_shards_of_other_generation_settings_do_not_merge(penalised, whole, tmp_path):
    run(penalised, out=tmp_path / "other", shard="1/2")
    with pytest.raises(MismatchError, match="repetition_penalty"):
        merge_shards([whole[1], tmp_path / "other"], tmp_path / "out")


def test_a_stopped_run_does_not_go_on_under_other_generation_settings(penalised, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(type(penalised.model), "generate", kill)
        run(penalised, out=tmp_path)
    before = tree(tmp_path)
    assert before
    penalised.model.generation_config.suppress_tokens = None
    with pytest.raises(MismatchError, match="suppress_tokens"):
        run(penalised, out=tmp_path)
    assert tree(tmp_path) == before


def test_calibration_leaves_the_model_as_it_was(llava):
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in llava.model.modules()]
    keys = set(vars(llava.model))
    run(llava, PAIRS[:1])
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in llava.model.modules()] == hooks
    assert set(vars(llava.model)) == keys


def test_the_papers_layer_is_read_unless_another_is_given(checkpoint, monkeypatch):
    model, processor = load(checkpoint("llava"))
    images = [picture(seed) for seed in range(2)]
    blocks = len(model.model.language_model.layers)
    short = {"max_new_tokens": 2}
    assert list(reweigh.calibrate(model, processor, images, **short).tables) == [
        blocks - 3
    ]  # as LLaVA-1.5's 29 of 32
    monkeypatch.setattr("reweigh.families.points.PUBLISHED", ())
    assert list(reweigh.calibrate(model, processor, images, **short).tables) == [blocks - 1]


@pytest.mark.parametrize("parts", [2, 3])
def test_shards_with_whole_batches_merge_to_the_bytes_of_the_whole(llava, tmp_path, parts):
    """Batches of two of five images, one unreadable: the shards cut the batches that one machine would."""
    images = tmp_path / "images"
    images.mkdir()
    for number in range(4):
        picture(number, (40 + 13 * number, 50)).save(images / f"{number}.png")
    (images / "1-broken.png").write_bytes(b"no image")
    run(llava, images, batch_size=2, out=tmp_path / "whole")
    folders = shards_of(llava, tmp_path, images, parts, batch_size=2)
    folders = shards_of(llava, tmp_path, images, parts, batch_size=2)  # finished: nothing to do
    merge_shards(folders[::-1], tmp_path / "merged")
    assert tree(tmp_path / "merged") == tree(tmp_path / "whole")


def test_shards_can_share_a_folder_and_one_without_images_is_refused(llava, whole, tmp_path):
    run(llava, out=tmp_path, shard="1/2")
    run(llava, out=tmp_path, shard="2/2")
    assert tree(tmp_path) == tree(whole[1])
    with pytest.raises(InputError, match="3/3"):
        run(llava, batch_size=2, shard="3/3")


def test_a_folder_that_vanishes_is_an_error(llava, tmp_path, monkeypatch):
    out, append = tmp_path / "out", Job.append

    def vanish(self, *given, **more):
        shutil.rmtree(out, ignore_errors=True)
        return append(self, *given, **more)

    monkeypatch.setattr(Job, "append", vanish)
    with pytest.raises(ReweighError, match="gone"):
        run(llava, out=out)


@pytest.mark.parametrize(("tokens", "warned"), [(3, True), (9, True), (10, False)])
def test_a_table_of_few_tokens_says_so(tokens, warned):
    values = np.full((1, tokens), 0.25, dtype=np.float32)
    observations = collect((1,), [ImageObservations("a", np.arange(tokens), np.full(tokens, 9), values)])
    identity = {"identity": {"model_id": "m"}}
    done = Calibration(observations, tables_of(observations, identity, rule="count-5"), identity)
    assert (1 in done.warnings()) is warned
    assert (done.warnings().get(1, "").startswith(f"only {tokens} tokens are registered")) is warned
