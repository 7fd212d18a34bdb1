"""Where layer and beta come from when the caller gives none."""

from __future__ import annotations

import pytest

import reweigh
import twin
from reweigh.errors import InputError
from reweigh.families.points import BETA
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import record_point
from reweigh.tables.table import ReferenceTable
from reweigh.world import operating_point, path, table_path

VOCABULARY = 64


@pytest.fixture
def folder(tmp_path):
    """A calibration folder with three layers."""
    for layer in (0, 1, 2):
        twin.table(VOCABULARY, layer=layer).save_pretrained(tmp_path)
    return tmp_path


def record(folder, layer, beta):
    record_point(folder, OperatingPoint(layer, beta, "tuned on 300 records of chair", 300))


def attach(loaded, folder, **options):
    return reweigh.attach(*loaded, table=folder, force=True, **options)


def test_a_tuned_point_is_taken_from_the_table(loaded, folder):
    record(folder, 1, 0.7)
    rw = attach(loaded("llava"), folder)
    assert (rw.layer, rw.beta) == (1, 0.7)
    assert "tuned on 300 records of chair" in rw.point.source
    assert "layer 1, beta 0.7 (tuned on 300 records" in repr(rw)
    assert "<td>0.7</td>" in rw._repr_html_()


def test_a_single_layer_of_a_tuned_folder_has_its_point(folder):
    record(folder, 1, 0.7)
    assert ReferenceTable.from_pretrained(folder / "layer-1.safetensors").point.beta == 0.7
    assert ReferenceTable.from_pretrained(folder / "layer-2.safetensors").point is None
    assert ReferenceTable.from_pretrained(folder, layer=2).point is None


def test_what_is_given_wins(loaded, folder):
    record(folder, 1, 0.7)
    rw = attach(loaded("llava"), folder, layer=2, beta=0.3)
    assert (rw.layer, rw.beta, rw.point.source) == (2, 0.3, "beta given")
    assert attach(loaded("llava"), folder, beta=0.0).beta == 0.0


@pytest.mark.parametrize(("family", "beta"), [("instructblip", 0.5), ("llava_next", 1.2), ("gemma3", 1.0)])
def test_else_the_paper_decides_by_family(loaded, folder, family, beta):
    rw = attach(loaded(family), folder / "layer-1.safetensors")
    assert rw.beta == beta
    assert "taken from" in rw.point.source


def test_the_published_layer_is_the_default_of_a_folder(loaded, folder):
    model, _ = loaded("llava")
    blocks = len(model.model.language_model.layers)
    assert attach(loaded("llava"), folder).layer == blocks - 3


def test_a_family_outside_the_paper_is_reported_to_tune(loaded, folder, monkeypatch):
    monkeypatch.setattr("reweigh.families.points.PUBLISHED", ())
    rw = attach(loaded("llava"), folder / "layer-1.safetensors")
    assert rw.beta == BETA
    assert "not chosen for this model" in rw.point.source
    with pytest.raises(InputError, match="0, 1, 2"):
        attach(loaded("llava"), folder)


def test_the_embedded_model_needs_no_numbers():
    from reweigh.families.load import load

    rw = reweigh.attach(*load(path(), device="cpu"), table=table_path())
    assert (rw.layer, rw.beta) == (operating_point()["layer"], operating_point()["beta"])


def test_a_trace_shows_itself(loaded, batch):
    rw = attach(loaded("llava"), twin.table(VOCABULARY, layer=1), beta=9.0)
    with rw.using(trace=True) as request:
        rw.model.generate(**batch("llava", (0,)), max_new_tokens=6, do_sample=False)
    changed = sum(step.changed for step in request.trace.steps())
    assert repr(request.trace) == (
        f"<Trace of {len(request.trace)} steps, layer 1; the edit changed the winner at {changed} of them>"
    )
    assert request.trace._repr_html_().count("<tr>") == changed + 1
