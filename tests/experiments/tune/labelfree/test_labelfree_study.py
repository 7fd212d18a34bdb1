"""The search without labels: an honest verifier chooses as labels do; verdicts are kept and asked for once."""

from __future__ import annotations

import json

import pytest

from checkpoints import load, picture
from reweigh.errors import InputError, MismatchError
from reweigh.experiments.tune.labelfree import open_lexicon, open_pictures, tune_without_labels
from reweigh.experiments.tune.verifier import ModelVerifier, question

TRUTH = ("dog", "cat")
INVENTED = ("car", "boat", "bus", "train", "bench")


class Honest:
    """Knows what is there and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, picture, names):
        self.asked += names
        return [1.0 if name in TRUTH else -1.0 for name in names]

    def describe(self):
        return {"kind": "honest"}


@pytest.fixture
def task(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(40):
        picture(number, (20, 20)).save(folder / f"{number:02d}.png")
    return open_pictures(folder)


@pytest.fixture
def answer(task):
    """The base invents; beta 1 invents half as often, beta 2 too, but drops a true object."""

    def write(where):
        texts, beta = [], where[1]
        for number in range(len(task.records)):
            words = ["dog"] if beta == 2 else ["dog", "cat"]
            if beta == 0 or number % 2:
                words.append(INVENTED[number % len(INVENTED)])
            texts.append(f"A {' and a '.join(words)}.")
        return texts

    return write


def search(answer, task, verifier, out):
    lexicon = open_lexicon("world")
    return tune_without_labels(answer, task, verifier, lexicon, out, layers=[3], betas=[1.0, 2.0])


def test_an_honest_verifier_chooses_what_labels_would(answer, task, tmp_path):
    made = search(answer, task, Honest(), tmp_path)
    assert made.chosen.where == (3, 1.0)
    base, point = ({name: one[name].value for name in one} for one in (made.base, made.chosen.metrics))
    assert (base["chair_s"], base["chair_i"], base["recall"]) == (100.0, pytest.approx(100 / 3), 100.0)
    assert (point["chair_s"], point["chair_i"]) == (50.0, pytest.approx(20.0))
    # every point names the dog of each image, and the invention of every other one
    assert (made.trust.h, made.trust.f, made.trust.denied) == (
        pytest.approx(40 / 60),
        0.0,
        40,
    )


def test_verdicts_are_kept(answer, task, tmp_path):
    first, again = Honest(), Honest()
    whole = search(answer, task, first, tmp_path)
    assert len(first.asked) == whole.trust.asked
    lines = (tmp_path / "verdicts.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "verdicts.jsonl").write_text("".join(lines[:30]) + '{"record": 3')  # killed while writing
    assert search(answer, task, again, tmp_path) == whole
    assert len(again.asked) == whole.trust.asked - 30


def test_another_verifier_may_not_go_on(answer, task, tmp_path):
    search(answer, task, Honest(), tmp_path)
    other = Honest()
    other.describe = lambda: {"kind": "other"}
    with pytest.raises(MismatchError, match="verifier"):
        search(answer, task, other, tmp_path)


def test_a_verifier_that_denies_everything_is_reported(answer, task, tmp_path):
    verifier = Honest()
    verifier.ask = lambda picture, names: [-1.0] * len(names)
    with pytest.raises(InputError, match="affirm"):
        search(answer, task, verifier, tmp_path)


def test_a_believing_verifier_is_refused(answer, task, tmp_path):
    verifier = Honest()
    verifier.ask = lambda picture, names: [1.0] * len(names)
    made = search(answer, task, verifier, tmp_path)
    assert made.chosen is None
    told = "\n".join(made.trust.in_words())
    assert "hardly distinguishes present from absent" in told
    assert f"of known absents (f), so J = h - f is {made.trust.j:.2f}" in told


def test_a_model_answers_with_two_logits(checkpoint):
    model, processor = load(checkpoint("llava"))
    verifier = ModelVerifier.__new__(ModelVerifier)
    verifier.model, verifier.processor, verifier.template, verifier.name = model, processor, None, "tiny"
    verifier.yes, verifier.no = [7, 8], [9]
    seen = picture(1, (56, 56))
    gaps = verifier.ask(seen, ["dog", "apple"])

    from reweigh.families.prompts import build_inputs

    for name, gap in zip(("dog", "apple"), gaps, strict=True):
        logits = model(**build_inputs(model, processor, [seen], [question(name)])).logits[0, -1].double()
        expected = (logits[7].exp() + logits[8].exp()).log() - logits[9]
        assert gap == pytest.approx(expected.item(), abs=1e-4)


def test_a_vocabulary_without_yes_is_refused(checkpoint):
    with pytest.raises(InputError, match="single token"):
        ModelVerifier(*load(checkpoint("llava")))


def test_pictures_of_no_folder(tmp_path):
    with pytest.raises(InputError, match="folder"):
        open_pictures(tmp_path / "none")
    with pytest.raises(InputError, match="objects"):
        open_lexicon("pope")("A dog.")


@pytest.mark.slow
def test_the_command_on_the_embedded_model(tmp_path):
    from typer.testing import CliRunner

    from reweigh.cli.app import app

    pictures, tmp_path = tmp_path / "pictures", tmp_path / "out"
    drawn = ["world", "draw", "-o", str(pictures), "--split", "tuning", "--count", "12"]
    assert CliRunner().invoke(app, drawn).exit_code == 0
    arguments = ["tune", "world", "--pictures", str(pictures), "--layers", "2"]
    arguments += ["--betas", "1.3,4", "--batch-size", "12", "-o", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    point = json.loads(done.stdout)
    assert point["chosen_on"]["verifier"]["j"] > 0.5
    assert (point["layer"] is None) == (point["chosen_on"]["verifier"]["refused"] is not None)
    files = [tmp_path / name for name in ("tuning.md", "report.html", "operating_point.json")]
    assert "verifier" in files[0].read_text()
    before = [path.read_bytes() for path in files]
    verdicts = (tmp_path / "verdicts.jsonl").read_bytes()
    again = CliRunner().invoke(app, arguments)
    assert json.loads(again.stdout) == point
    assert [path.read_bytes() for path in files] == before
    assert (tmp_path / "verdicts.jsonl").read_bytes() == verdicts, "nothing is asked again"
