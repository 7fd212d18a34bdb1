"""``reweigh describe`` and ``doctor``: text for a person, JSON for a program, refusals."""

from __future__ import annotations

import io
import subprocess
import sys
from shutil import copytree
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

from checkpoints import picture
from reweigh.cli import why
from reweigh.method.edit import Candidates
from reweigh.method.trace import Recorded, Trace
from reweigh.tables.table import ReferenceTable

SHORT = ["--max-new-tokens", "6"]
BRIEF = ["--max-new-tokens", "1"]


@pytest.fixture
def photo(photos):
    return photos / "6.png"  # one whose description changes under the edit


@pytest.fixture
def given(checkpoint, photo, calibrated):
    """Model, image and table as arguments."""
    return [checkpoint("llava"), photo, "--table", calibrated, "--layer", "3"]


def test_describe_prints_the_text_alone(cli, given):
    done = cli("describe", *given, *SHORT, "--beta", "3")
    page = cli("describe", *given, *SHORT, "--beta", "3", "--json").json
    assert (done.code, done.err) == (0, "")
    assert done.out == page["reweigh"] + "\n"
    assert (page["layer"], page["beta"]) == (3, 3.0)


def test_describe_says_where_a_beta_comes_from(cli, checkpoint, photo, calibrated):
    done = cli("describe", checkpoint("llava"), photo, "-t", calibrated, *SHORT, "--json")
    assert (done.json["layer"], done.json["beta"]) == (1, 1.1)
    assert (
        done.err == "layer 1, beta 1.1 (taken from LLaVA-1.5-7B, at the same distance from the last block)\n"
    )


def test_describe_works_in_a_process_of_its_own(photo):
    """Nothing that another test imported may be needed."""
    command = [sys.executable, "-m", "reweigh", "describe", "world", str(photo), *BRIEF]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "The\n"), done.stderr


def test_describe_compares_with_the_base_model(cli, given):
    page = cli("describe", *given, *SHORT, "--beta", "40", "--compare", "--json").json
    assert page["base"] != page["reweigh"]
    shown = cli("describe", *given, *SHORT, "--beta", "40", "--compare")
    assert "base (" in shown.out
    assert "ReWEIGH (" in shown.out
    assert "no word changed" not in shown.out
    same = cli("describe", *given, *SHORT, "--beta", "0", "--compare")
    assert "no word changed" in same.out
    page = cli("describe", *given, *SHORT, "--beta", "0", "--compare", "--json").json
    assert page["base"] == page["reweigh"]


def test_describe_takes_several_images(cli, given, photos):
    model, first, *rest = given
    second = photos / "2.png"
    page = cli("describe", model, first, second, *rest, *SHORT, "--beta", "3", "--json").json
    alone = [
        cli("describe", model, one, *rest, *SHORT, "--beta", "3", "--json").json for one in (first, second)
    ]
    assert page == alone
    assert [one["image"] for one in page] == [str(first), str(second)]
    shown = cli("describe", model, first, second, *rest, *SHORT, "--beta", "3").out
    assert shown == "".join(f"{one['image']}:\n{one['reweigh']}\n" for one in page)


def test_describe_hands_arguments_to_the_chat_template(cli, given, tmp_path):
    model, *rest = given
    switched = tmp_path / "switched"
    copytree(model, switched)
    template = switched / "chat_template.jinja"
    template.write_text(template.read_text() + "{% if brief %} A {% endif %}")
    plain = cli("describe", *given, *SHORT, "--json").json["reweigh"]
    options = [*rest, *SHORT, "--json", "--model-option"]
    said = [
        cli("describe", switched, *options, f"template.brief={value}").json["reweigh"]
        for value in ("false", "true")
    ]
    assert said[0] == plain != said[1]
    done = cli("describe", switched, *options, "template.breif=true")
    assert (done.code, "does not read 'breif'" in done.err) == (1, True)
    done = cli("describe", switched, *options, "template.brief=true", "--model-option", "template={prompt}")
    assert (done.code, "which template=TEXT replaces" in done.err) == (1, True)


def test_describe_takes_decoding_options(cli, given):
    def said(*options):
        return cli("describe", *given, *SHORT, *options, "--json").json["reweigh"]

    greedy = said()
    assert said("--temperature", "0") == greedy
    hot = ["--temperature", "50"]
    assert said(*hot, "--seed", "1") == said(*hot, "--seed", "1")
    assert len({said(*hot, "--seed", str(seed)) for seed in range(3)}) > 1


def test_beta_has_the_papers_default(cli, given):
    assert cli("describe", *given, "--max-new-tokens", "1", "--json").json["beta"] == 1.1


@pytest.mark.parametrize("beta", ["-1", "nan", "inf"])
def test_an_impossible_beta(cli, given, beta):
    done = cli("describe", *given, "--beta", beta)
    assert (done.code, done.out) == (1, "")
    assert "finite" in done.err


class TestRefusals:
    def refused(self, done, message):
        assert (done.code, done.out) == (1, "")
        assert message in done.err
        assert "Traceback" not in done.err

    def test_no_table(self, cli, checkpoint, photo):
        done = cli("describe", checkpoint("llava"), photo)
        self.refused(done, "no reference table was given")
        assert "calibrate" in done.err

    def test_a_model_folder_that_does_not_exist_comes_first(self, cli, photo, tmp_path):
        self.refused(cli("describe", tmp_path / "model", photo), f"there is no folder {tmp_path / 'model'}")

    def test_a_table_that_is_nowhere(self, cli, checkpoint, photo, tmp_path):
        self.refused(
            cli("describe", checkpoint("llava"), photo, "-t", tmp_path), "contains no reference table"
        )
        self.refused(
            cli("describe", checkpoint("llava"), photo, "-t", "no/table"), "neither a folder nor a Hub"
        )

    def test_several_layers_and_none_chosen(self, cli, checkpoint, photo, calibrated, monkeypatch):
        monkeypatch.setattr("reweigh.families.points.PUBLISHED", ())
        self.refused(cli("describe", checkpoint("llava"), photo, "-t", calibrated), "several layers: 1, 3")

    def test_layers(self, cli, checkpoint, photo, calibrated):
        model = checkpoint("llava")
        self.refused(cli("describe", model, photo, "-t", calibrated, "--layer", "9"), "no table of layer 9")
        self.refused(
            cli("describe", model, photo, "-t", calibrated, "--layer", "2"), "holds no table of layer 2"
        )

    def test_a_table_of_another_model(self, cli, checkpoint, photo, calibrated):
        done = cli("describe", checkpoint("llava_next"), photo, "-t", calibrated, "--layer", "3")
        self.refused(done, "architecture: table LlavaForConditionalGeneration, model LlavaNext")
        assert "--force" in done.err

    def test_another_dtype_unless_forced(self, cli, given):
        text = [*BRIEF, "--check", "--why"]
        done = cli("describe", *given, *text, "--model-option", "dtype=bfloat16")
        self.refused(done, "lens dtype: table float32, model bfloat16")
        assert '", dtype="float32"), --model-option dtype=float32 for a command' in done.err
        assert cli("describe", *given, *text, "--model-option", "dtype=bfloat16", "--force", "--json").json

    def test_bad_images(self, cli, checkpoint, calibrated, tmp_path):
        stream = io.BytesIO()
        picture(0, (300, 300)).save(stream, "JPEG")
        (tmp_path / "cut.jpg").write_bytes(stream.getvalue()[:-500])
        Image.new("1", (10_000, 5_000)).save(tmp_path / "huge.png")
        Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
        reasons = {
            "gone.png": "does not exist",
            "cut.jpg": "cannot be read as an image",
            "huge.png": "50.0 megapixels, more than 48",
            "dot.png": "1x1 pixels, too small",
        }
        for name, reason in reasons.items():
            done = cli("describe", checkpoint("llava"), tmp_path / name, "-t", calibrated, "--layer", "3")
            self.refused(done, reason)
            assert name in done.err

    def test_no_chat_template(self, cli, checkpoint, photo, calibrated):
        bare = [checkpoint("llava", bare=True), photo, "-t", calibrated, "--layer", "3"]
        done = cli("describe", *bare)
        self.refused(done, "has no chat template")
        assert "<image>" in done.err
        template = ["--model-option", "template=USER: <image>\n{prompt} ASSISTANT:"]
        text = [*BRIEF, "--check", "--why"]
        assert cli("describe", *bare, *template, *text, "--json").json

    def test_a_template_without_a_place_for_the_image(self, cli, given):
        done = cli("describe", *given, "--model-option", "template=USER: {prompt}")
        self.refused(done, "no image placeholder")
        assert "<image>" in done.err


def test_why_as_json_and_as_a_table(cli, given):
    page = cli("describe", *given, *SHORT, "--beta", "40", "--json", "--why").json
    text, page = page["reweigh"], page["why"]
    assert len(page["steps"]) == 6
    assert page["changed_steps"] == [
        step["step"] for step in page["steps"] if step["winner_before"] != step["winner_after"]
    ]
    assert text == cli("describe", *given, *SHORT, "--beta", "40", "--json").json["reweigh"]
    done = cli("describe", *given, *SHORT, "--beta", "40", "--step", "2", "--why")
    assert "step 2: b0 = " in done.out
    assert "beta = 40, layer 3" in done.out
    assert f"changed the winner at {', '.join(map(str, page['changed_steps']))}" in done.out
    for row in page["steps"][2]["candidates"][:8]:
        assert f"{row['z']:.3f}" in done.out
        assert f"{row['z_after']:.3f}" in done.out
    assert f"and {len(page['steps'][2]['candidates']) - 8} more candidates" in done.out


def test_why_shows_the_first_changed_step_by_default(cli, given):
    changed = cli("describe", *given, *SHORT, "--beta", "40", "--json", "--why").json["why"]["changed_steps"]
    assert f"step {changed[0]}: " in cli("describe", *given, *SHORT, "--beta", "40", "--why").out
    assert (
        "the edit changed the winner at none" in cli("describe", *given, *SHORT, "--beta", "0", "--why").out
    )


@pytest.mark.parametrize("step", ["6", "99", "-1"])
def test_a_step_that_does_not_exist(cli, given, step):
    done = cli("describe", *given, *SHORT, "--step", step, "--why")
    assert done.code == 1
    assert f"step {step}" in done.err


def test_why_writes_no_svg_into_another_kind_of_file(cli, given, tmp_path):
    done = cli("describe", *given, *SHORT, "--plot", tmp_path / "step.png", "--why")
    assert done.code == 1
    assert ".svg" in done.err
    assert not (tmp_path / "step.png").exists()


def test_why_draws_the_mechanism_plot(cli, given, tmp_path):
    done = cli("describe", *given, *SHORT, "--step", "1", "--plot", tmp_path / "new" / "step.svg", "--why")
    assert done.code == 0
    assert "step.svg" in done.err
    root = ElementTree.parse(tmp_path / "new" / "step.svg").getroot()
    assert root.tag.endswith("svg")


def three_tokens(texts):
    """An empty trace over three tokens, all of them candidates, and zeros for what it records."""
    trace = Trace(scale=1.0, beta=1.0, layer=0, references=torch.ones(3), decode=lambda token: texts[token])
    chosen = Candidates(
        torch.arange(3)[None], torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3), torch.tensor([True])
    )
    return trace, chosen, torch.zeros(1, 3)


def test_token_texts_that_look_like_markup_are_shown_as_they_are(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    texts = ["[/INST]", "[red]", "\\[b]"]
    trace, chosen, zeros = three_tokens(texts)
    trace.record(Recorded(chosen, zeros + 1, zeros, zeros, torch.tensor([0]), torch.tensor([0])))
    why.print_step(trace, trace.step(0), 8, {})
    shown = capsys.readouterr().out
    assert "[/INST]" in shown
    assert "[red]" in shown


def test_pieces_are_shown_as_the_words_they_begin(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    texts = [" f", "ire", " car"]
    trace, chosen, zeros = three_tokens(texts)
    for before, after in ((2, 0), (1, 1), (2, 2)):  # " f" where " car" was ahead, then "ire", then " car"
        trace.record(Recorded(chosen, zeros, zeros, zeros, torch.tensor([before]), torch.tensor([after])))
    assert [trace.word(step) for step in range(3)] == ["fire", "fire", "car"]
    why.print_step(trace, trace.step(0), 8, {0: trace.word(0), 2: "carpet"})
    shown = capsys.readouterr().out
    assert "fire (piece “f”)" in shown
    assert "carpet (piece “car”)" in shown
    assert "suppressed" in shown
    assert "emitted" in shown
    assert "<td>car</td><td>fire</td>" in trace._repr_html_()


def test_check_marks_given_words(cli, given, calibrated):
    text = "Please describe this image in detail."
    page = cli("describe", *given, "--text", text, "--json").json["check"]
    assert [word["text"] for word in page["words"]] == text.split()
    known = [word for word in page["words"] if word["ratio"] is not None]
    assert known
    assert {word["text"]: word["state"] for word in page["words"]}["this"] == "not judged"
    shown = cli("describe", *given, "--text", text + " A submarine.").out
    assert shown.startswith(text)
    assert "detail.:" not in shown, "the full stop is not part of the word"
    assert shown.count(": lacks support") == sum(word["state"] == "unsupported" for word in page["words"])
    assert "this: unsupported" not in shown
    assert "submarine" in shown.partition("not judged")[2]
    table = ReferenceTable.from_pretrained(calibrated, layer=3)
    assert {token["token"] for token in page["tokens"] if token["s"] is not None} == {
        token["token"] for token in page["tokens"] if table.reference(token["token"]) is not None
    }


def test_check_marks_the_description_itself(cli, given):
    page = cli("describe", *given, *SHORT, "--check", "--json").json
    assert page["check"]["text"] == page["reweigh"]


def test_options_of_why_need_it(cli, given):
    for option in (["--step", "1"], ["--plot", "a.svg"]):
        done = cli("describe", *given, *option)
        assert (done.code, done.out) == (1, "")
        assert "--why" in done.err


def test_why_and_a_text_take_one_picture(cli, given, photos):
    model, first, *rest = given
    for option in (["--why"], ["--text", "a dog"]):
        done = cli("describe", model, first, photos / "2.png", *rest, *option)
        assert (done.code, done.out) == (1, "")
        assert "one picture" in done.err


def test_doctor_prints_anatomy_positions_and_verdict(cli, checkpoint, photo):
    done = cli("doctor", checkpoint("llava"), photo)
    assert done.code == 0
    for words in (
        "LlavaForConditionalGeneration (family llava, float32 on cpu)",
        "model.language_model.layers (4)",
        "model.language_model.norm",
        "lm_head (400 rows, 400 of them ranked, lens in float32)",
        "16 of ",
        "tile 0: 4x4",
        "verdict: supported",
    ):
        assert words in done.out


@pytest.mark.parametrize("family", ["instructblip", "qwen2_5_vl"])
def test_doctor_as_json_without_an_image(cli, checkpoint, family):
    page = cli("doctor", checkpoint(family), "--json").json
    assert page["family"] == family
    assert page["parity"]["holds"]
    assert page["visual_positions"]["count"] > 0
    assert bool(page["visual_positions"]["tiles"]) == (family != "instructblip")
    assert page["kernel"]["chosen"] in page["kernel"]["known"]


def test_doctor_says_why_the_fastest_kernel_is_not_used(cli, checkpoint, monkeypatch):
    monkeypatch.setattr("reweigh.method.kernels._numba_kernel", lambda: OSError("libllvmlite.so is gone"))
    done = cli("doctor", checkpoint("llava"))
    assert "ranking kernel numpy" in done.out
    kernel, why = done.out.splitlines()[6:8]
    assert "ranking kernel numpy" in kernel
    assert "a faster kernel is not used: numba is installed, but" in why
    assert "libllvmlite.so is gone" in why
    assert "install numba again" in why


def test_doctor_says_when_the_lens_is_not_the_models_output(cli, checkpoint, monkeypatch):
    from checkpoints import load

    model, processor = load(checkpoint("llava"))

    def upside_down(_module, _args, output):
        output.logits = -output.logits
        return output

    model.register_forward_hook(upside_down)
    monkeypatch.setattr("reweigh.cli.common.Loading.load", lambda *args, **options: (model, processor))
    done = cli("doctor", "turned")
    assert done.code == 1
    assert "verdict: NOT supported" in done.out
    page = cli("doctor", "turned", "--json")
    assert page.code == 1
    assert '"holds": false' in page.out


def test_doctor_lists_the_papers_points(cli):
    page = cli("doctor", "--points", "--json").json
    gemma = next(point for point in page if point["model"] == "Gemma-3-27B")
    assert (gemma["blocks"], gemma["layer"], gemma["beta"]) == (62, 59, 0.5)
    assert "InstructBLIP-13B" in cli("doctor", "--points").out
    assert cli("doctor").code == 2
