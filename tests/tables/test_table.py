"""The reference table: saved whole, refused when cut, altered or of another model, shared through the Hub."""

from __future__ import annotations

import base64
import shutil
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import sha256_file, sha256_json, write_json, write_tensors
from reweigh.files.paged import read_paged, write_paged
from reweigh.tables import schema2
from reweigh.tables.key import ModelKey, weights_of
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import record_point, recorded_point, table_layers
from reweigh.tables.table import ReferenceTable
from sameness import assert_same

TABLE_ROWS = 32064
ONES = np.ones(8, np.float32), 16
IDENTITY = ModelKey(
    model_id="me/model",
    revision="abc",
    architecture="LlavaForConditionalGeneration",
    blocks=32,
    vocab_size=32064,
    weights=weights_of({"lm_head.weight": ONES, "norm.weight": ONES}),
    adapters={},
    tokenizer="2" * 64,
    images={"backend": "pil", "size": {"shortest_edge": 336}, "do_resize": True},
    config={"vision_feature_layer": -2},
)


def make(layer=29, tokens=(3, 17, 31999), scale=0.00324809, **about):
    count = len(tokens)
    about = {
        "identity": IDENTITY.to_json(),
        "dtype": "float16",
        "lens": "native",
        "candidates": {"mass": 0.9, "least": 2, "most": 50},
        "rule": "stable",
        **about,
    }
    return ReferenceTable(
        layer,
        scale,
        np.array(tokens, dtype=np.int64),
        np.linspace(0.001, 0.5, count, dtype=np.float64),
        np.arange(6, 6 + count, dtype=np.int64),
        about,
    )


@settings(max_examples=40)
@given(
    references=st.dictionaries(st.integers(0, 32063), st.floats(1e-12, 1.0), max_size=8),
    scale=st.floats(1 / 32064, 1.0),
)
def test_a_saved_table_is_the_same_to_the_last_bit(tmp_path_factory, references, scale):
    tokens = sorted(references)
    table = replace(
        make(tokens=tokens, scale=scale),
        references=np.array([references[token] for token in tokens], dtype=float),
    )
    file = table.save_pretrained(tmp_path_factory.mktemp("table"))
    found = ReferenceTable.from_pretrained(file.parent)
    assert_same(found, table)
    assert found.b0 == scale
    again = found.save_pretrained(tmp_path_factory.mktemp("again"))
    assert file.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(("low", "warned"), [(0, False), (7, False), (9, False), (10, True), (12, True)])
def test_references_that_say_little_are_warned_about(low, warned):
    """Twelve tokens; of more than three quarters the reference is below b0."""
    table = make(tokens=tuple(range(12)))
    references = np.where(np.arange(12) < low, table.b0 * 0.4, table.b0 * 5.7)
    references[-1:] = table.b0 if low < 12 else references[-1:]  # equal is not below
    table = replace(table, references=references)
    counted = 0
    for token in table.tokens.tolist():  # the strength that the edit can reach at all, token by token
        most = min(max((table.reference(token) - 0.0) / table.b0, 0.0), 1.0)
        counted += most < 1.0
    assert table.low_share == counted / 12
    assert (table.weakness() is not None) is warned
    if warned:
        assert f"{counted / 12:.0%} of the registered tokens" in table.weakness()


def test_a_table_of_another_readout_or_of_nothing_has_no_such_warning():
    low = replace(make(tokens=tuple(range(12))), references=np.full(12, 0.001))
    assert low.weakness() is not None
    assert replace(low, about={**low.about, "readout": "prob"}).weakness() is None
    assert make(tokens=()).weakness() is None


def test_b0_never_stands_in_for_a_missing_reference():
    table = make()
    assert table.reference(17) == table.references[1]
    assert [table.reference(token) for token in (0, 4, 31998, 32000, -1)] == [None] * 5
    assert make(tokens=()).reference(3) is None


def test_it_says_what_it_is():
    assert repr(make()) == "ReferenceTable('me/model', layer=29, b0=0.00324809, registered=3)"
    assert len(make(tokens=())) == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_table_cut_short_is_refused(tmp_path, share):
    file = make().save_pretrained(tmp_path)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ArtifactError, match=file.name) as caught:
        ReferenceTable.from_pretrained(tmp_path)
    assert caught.value.hint


def test_no_flipped_byte_goes_unseen(tmp_path):
    table = replace(make(prompt="é\U0001f600", scale=1.5e-05), point=OperatingPoint(29, 1.1, "tuned", 5))
    file = table.save_pretrained(tmp_path)
    whole, unseen = file.read_bytes(), []
    for position in range(len(whole)):
        altered = bytearray(whole)
        altered[position] ^= 1 << (position % 8)
        file.write_bytes(bytes(altered))
        try:
            found = ReferenceTable.from_pretrained(tmp_path)
        except ArtifactError:
            continue
        unseen.append((position, found.fingerprint == table.fingerprint, found.point == table.point))
    # what safetensors itself does not read, such as a space of the header's padding, changes nothing
    assert all(same and point for _, same, point in unseen)
    assert len(unseen) < 20


@pytest.mark.parametrize(
    ("old", "new"), [(b"1.5e-05", b"1.5e905"), (b"1.5e-05", b"1.5e-06"), (b'"layer\\": 29', b'"layer\\": 28')]
)
def test_an_edited_number_is_refused(tmp_path, old, new):
    file = make(scale=1.5e-05).save_pretrained(tmp_path)
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, 1))
    with pytest.raises(ArtifactError, match="altered"):
        ReferenceTable.from_pretrained(tmp_path)


def rewrite(file, change):
    """Change a page as a program that knows the format could."""
    page, arrays = read_paged(file)
    change(page)
    write_paged(file, page, arrays)


@pytest.mark.parametrize("schema", [0, 2, 4, "3", True, None])
def test_another_schema_is_refused_with_both_versions(tmp_path, schema):
    rewrite(make().save_pretrained(tmp_path), lambda page: page.update(schema=schema))
    with pytest.raises(ArtifactError, match="this version reads 3"):
        ReferenceTable.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda page: page["about"].update(identity={}), "identity"),
        (lambda page: page["about"].update(identity=None), "identity"),
        (lambda page: page["about"].pop("identity"), "identity"),
        (lambda page: page.update(about=[]), "about"),
        (lambda page: page.update(layer="29"), "str"),
        (lambda page: page.update(layer=True), "bool"),
        (lambda page: page.update(layer=2), "layer 2"),
        (lambda page: page.pop("b0"), "b0"),
        (
            lambda page: page.update(point={"beta": -1.0, "source": "x", "records": 1, "pictures": {}}),
            "beta of its point",
        ),
        (lambda page: page.update(point={"beta": 1.0}), "source"),
        (lambda page: page.update(point=1.0), "point"),
    ],
)
def test_a_page_that_was_changed_and_hashed_again_is_refused(tmp_path, change, message):
    rewrite(make().save_pretrained(tmp_path), change)
    with pytest.raises(ArtifactError, match=message):
        ReferenceTable.from_pretrained(tmp_path)


def test_columns_of_something_else_are_refused(tmp_path):
    page = make().page()
    write_paged(tmp_path / "layer-29.safetensors", page, {"tokens": np.arange(3)})
    with pytest.raises(ArtifactError, match="references"):
        ReferenceTable.from_pretrained(tmp_path)


def test_only_a_table_is_replaced(tmp_path):
    file = make().save_pretrained(tmp_path)
    make(scale=0.1).save_pretrained(tmp_path)
    assert ReferenceTable.from_pretrained(tmp_path).b0 == 0.1
    file.write_text("mine")
    with pytest.raises(InputError, match="not a reference table"):
        make().save_pretrained(tmp_path)
    assert file.read_text() == "mine"


def test_a_point_is_in_the_table_and_chooses_the_layer(tmp_path):
    for layer in (2, 10):
        make(layer=layer).save_pretrained(tmp_path)
    assert recorded_point(tmp_path) is None
    before = make(layer=10).fingerprint
    for point in (OperatingPoint(2, 0.7, "tuned first", 100), OperatingPoint(10, 1.25, "tuned", 300)):
        file = record_point(tmp_path, point)
        assert recorded_point(tmp_path) == ReferenceTable.from_pretrained(tmp_path).point == point
        assert ReferenceTable.from_pretrained(file).layer == point.layer
    assert ReferenceTable.from_pretrained(tmp_path, layer=10).fingerprint == before
    assert ReferenceTable.from_pretrained(tmp_path, layer=2).point is None


def write_schema2(table, folder, point=None):
    """Write a table as earlier versions did, with a signature of each tensor."""
    folder.mkdir(parents=True, exist_ok=True)
    signature = f"bfloat16 4x4 {base64.b64encode(np.full(16, 0x3F80, '<u2').tobytes()).decode()}"
    weights = {"lm_head.weight": signature, "norm.weight": signature}
    about = {**table.about, "identity": {**table.about["identity"], "weights": weights}}
    write_tensors(folder / schema2.NUMBERS, table.arrays())
    page = {
        "schema_version": 2,
        "layer": table.layer,
        "b0": table.b0,
        "registered": len(table),
        "made_with": about,
        "numbers_sha256": sha256_file(folder / schema2.NUMBERS),
    }
    write_json(folder / schema2.PAGE, {**page, "page_sha256": sha256_json(page)})
    if point is not None:
        page = {"layer": point.layer, "beta": point.beta, "chosen_on": {"records": 300, "benchmark": "world"}}
        write_json(folder.parent / schema2.POINT, {**page, "page_sha256": sha256_json(page)})


def test_older_tables_are_read_with_advice_and_rewritten(tmp_path, caplog):
    point = OperatingPoint(10, 1.25, "tuned on 300 records of world, recorded with the table", 300)
    write_schema2(make(layer=10), tmp_path / "old" / "layer-10", point)
    write_schema2(make(layer=2), tmp_path / "old" / "layer-2")
    assert table_layers(tmp_path / "old") == [2, 10]
    found = ReferenceTable.from_pretrained(tmp_path / "old")
    assert "reweigh table export" in caplog.text
    assert_same(found, replace(make(layer=10), point=point))
    assert ReferenceTable.from_pretrained(tmp_path / "old", layer=2).point is None
    assert ReferenceTable.from_pretrained(tmp_path / "old" / "layer-2").layer == 2
    again = ReferenceTable.from_pretrained(found.save_pretrained(tmp_path / "new"))
    assert_same(again, found)


@pytest.mark.parametrize("name", [schema2.PAGE, schema2.NUMBERS])
def test_an_older_table_that_was_altered_is_refused(tmp_path, name):
    write_schema2(make(), tmp_path)
    whole = (tmp_path / name).read_bytes()
    for position in range(0, len(whole), 7):
        altered = bytearray(whole)
        altered[position] ^= 1 << (position % 8)
        (tmp_path / name).write_bytes(bytes(altered))
        with pytest.raises(ArtifactError):
            ReferenceTable.from_pretrained(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ArtifactError):
        ReferenceTable.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b0": 0.0}, "b0 is 0.0"),
        ({"b0": -1.0}, "b0 is -1.0"),
        ({"b0": float("nan")}, "b0 is nan"),
        ({"b0": float("inf")}, "b0 is inf"),
        ({"tokens": np.array([17, 3, 31999])}, "not ascending"),
        ({"tokens": np.array([3, 3, 31999])}, "not ascending"),
        ({"tokens": np.array([-1, 3, 31999])}, "not ascending"),
        ({"tokens": np.array([1, 3])}, "different lengths"),
        ({"counts": np.array([[6, 7, 8]])}, "shapes"),
        ({"counts": np.array([6, 0, 8])}, "count"),
        ({"counts": np.array([6, 5, 8])}, "count"),
        ({"counts": np.array([6, 7, 8], dtype=np.int32)}, "types"),
        ({"references": np.array([0.1, 0.2, 0.3], dtype=np.float32)}, "types"),
        ({"tokens": np.array([1, 3, 32064])}, "beyond"),
        ({"b0": 5.0}, "b0"),
        ({"b0": 1e300}, "b0"),
        ({"b0": 1e-300}, "b0"),
        ({"layer": -1}, "layer"),
        ({"layer": 32}, "layer"),
        ({"about": {}}, "identity"),
        ({"references": np.array([0.1, 0.0, 0.2])}, "outside"),
        ({"references": np.array([0.1, 1.1, 0.2])}, "outside"),
        ({"references": np.array([0.1, np.nan, 0.2])}, "not finite"),
        ({"about": {"identity": IDENTITY.to_json(), "readout": "soft"}}, "readout .soft. is unknown"),
    ],
)
def test_impossible_tables_are_refused(change, message):
    make().verify()
    with pytest.raises(ArtifactError, match=message):
        replace(make(), **change).verify()


def test_a_table_under_another_layers_name_is_refused(tmp_path):
    make(layer=2).save_pretrained(tmp_path).rename(tmp_path / "layer-1.safetensors")
    for place in (tmp_path, tmp_path / "layer-1.safetensors"):
        with pytest.raises(ArtifactError, match="layer 2"):
            ReferenceTable.from_pretrained(place)


def test_the_layers_of_a_folder(tmp_path):
    with pytest.raises(ArtifactError, match="reference table"):
        table_layers(tmp_path)
    for layer in (10, 2):
        make(layer=layer).save_pretrained(tmp_path)
    assert table_layers(tmp_path) == [2, 10]
    assert table_layers(tmp_path / "layer-10.safetensors") == [10]


def test_several_layers_in_one_folder(tmp_path):
    with pytest.raises(ArtifactError, match="reference table") as caught:
        ReferenceTable.from_pretrained(tmp_path)
    assert "reweigh calibrate" in str(caught.value)
    make(layer=2).save_pretrained(tmp_path)
    assert ReferenceTable.from_pretrained(tmp_path).layer == 2
    make(layer=10).save_pretrained(tmp_path)
    assert ReferenceTable.from_pretrained(str(tmp_path), layer=10).layer == 10
    with pytest.raises(InputError, match="2, 10"):
        ReferenceTable.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="layer 1"):
        ReferenceTable.from_pretrained(tmp_path, layer=1)
    with pytest.raises(MismatchError, match="layer 10"):
        ReferenceTable.from_pretrained(tmp_path / "layer-10.safetensors", layer=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "Gemma3ForConditionalGeneration"}, "architecture: table Llava.*, model Gemma3"),
        (
            {"weights": weights_of({"lm_head.weight": ONES, "norm.weight": (2 * ONES[0], 16)})},
            "8 of 16 sampled weights differ",
        ),
        (
            {"weights": weights_of({"lm_head.weight": ONES, "norm.weight": (ONES[0], 20)})},
            "weights: table 2 tensors of 32 numbers, model 2 tensors of 36 numbers",
        ),
        (
            {"weights": weights_of({"lm_head.weight": ONES})},
            "weights: table 2 tensors of 32 numbers, model 1 tensors of 16 numbers",
        ),
        ({"adapters": {"mine": [2.0]}}, r"adapters: table none, model mine \(scale 2\.0\)"),
        (
            {"images": {**IDENTITY.images, "size": {"shortest_edge": 448}}},
            r"the image processor's size\.shortest_edge: table 336, model 448",
        ),
        (
            {"images": {**IDENTITY.images, "backend": "torchvision"}},
            "the image processor's backend: table pil, model torchvision",
        ),
        (
            {"images": {**IDENTITY.images, "do_pad": True}},
            "the image processor's do_pad: table not set, model True",
        ),
        (
            {"config": {"vision_feature_layer": -1}},
            "the configuration's vision_feature_layer: table -2, model -1",
        ),
        ({"vocab_size": 32000}, "vocab size: table 32064, model 32000"),
        ({"blocks": 40}, "blocks: table 32, model 40"),
        ({"tokenizer": "4" * 64}, f"tokenizer: table {'2' * 12}, model {'4' * 12}"),
    ],
)
def test_another_model_is_refused_with_both_sides(change, words):
    table = make()
    table.check_pairing(IDENTITY, dtype="float16", rows=TABLE_ROWS)
    other = replace(IDENTITY, model_id="you/other", **change)
    with pytest.raises(MismatchError, match=f"you/other .*{words}") as caught:
        table.check_pairing(other, dtype="float16", rows=TABLE_ROWS)
    assert "--force" in str(caught.value)


def test_another_lens_dtype_is_refused_with_both_sides():
    with pytest.raises(MismatchError, match="float16"):
        make().check_pairing(IDENTITY, dtype="float32", rows=TABLE_ROWS)


def test_another_number_of_ranked_rows_is_refused_with_both_sides():
    for table, rows in ((make(rows=32000), 32064), (make(), 32000)):
        with pytest.raises(MismatchError, match=f"rows ranked: table {64064 - rows}, model {rows}"):
            table.check_pairing(IDENTITY, dtype="float16", rows=rows)
    make(rows=32000).check_pairing(IDENTITY, dtype="float16", rows=32000)


def test_a_token_that_was_not_ranked_makes_a_table_unusable():
    make(rows=32000).verify()
    with pytest.raises(ArtifactError, match="token 32000 is beyond the 32000"):
        make(tokens=(3, 32000), rows=32000).verify()


def test_another_candidate_rule_is_refused_with_both_sides():
    table = make(candidates={"mass": 0.95, "least": 2, "most": 50})
    with pytest.raises(MismatchError, match=r"0\.95"):
        table.check_pairing(IDENTITY, dtype="float16", rows=TABLE_ROWS)


@pytest.mark.parametrize("field", [field.name for field in fields(ModelKey)])
def test_a_table_that_does_not_say_its_model_is_refused(field):
    record = IDENTITY.to_json()
    without = make(identity={name: value for name, value in record.items() if name != field})
    emptied = make(identity={**record, field: type(record[field])()})
    for table in (without, emptied):
        if field in ("model_id", "revision") or (field == "adapters" and table is emptied):
            table.check_pairing(IDENTITY, dtype="float16", rows=TABLE_ROWS)
            continue
        with pytest.raises(MismatchError, match=field) as caught:
            table.check_pairing(IDENTITY, dtype="float16", rows=TABLE_ROWS)
        assert "--force" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"identity": {}}, "architecture"),
        ({"identity": None}, "weights"),
        ({"identity": "LLaVA"}, "tokenizer"),
        ({"dtype": None}, "dtype"),
        ({"candidates": None}, "candidate"),
    ],
)
def test_an_emptied_record_is_refused(change, words):
    with pytest.raises(MismatchError, match=words):
        make(**change).check_pairing(IDENTITY, dtype="float16", rows=TABLE_ROWS)


def test_many_settings_are_counted_and_versions_may_add_some():
    crowd = {f"setting_{at}": at for at in range(9)}
    table = make(identity=replace(IDENTITY, images=crowd, config=crowd).to_json())
    with pytest.raises(MismatchError, match="5 more"):
        table.check_pairing(
            replace(IDENTITY, images={name: -1 for name in crowd}, config={**crowd, "added": 1}),
            dtype="float16",
            rows=TABLE_ROWS,
        )
    table.check_pairing(
        replace(IDENTITY, images=crowd, config={**crowd, "added": 1}), dtype="float16", rows=TABLE_ROWS
    )


def test_a_renamed_copy_or_no_processor_is_accepted():
    make().check_pairing(
        replace(IDENTITY, model_id="/elsewhere", revision=None), dtype="float16", rows=TABLE_ROWS
    )
    make().check_pairing(replace(IDENTITY, tokenizer="", images={}), dtype="float16", rows=TABLE_ROWS)


def test_layers_are_checked_on_their_own():
    make().check_layer(None)
    make().check_layer(29)
    with pytest.raises(MismatchError, match="layer 29"):
        make().check_layer(28)


def test_comparing():
    one, other = make(), replace(make(tokens=(17, 40)), references=np.array([0.5, 0.1]))
    assert one.compare(make())["equal"]
    assert one.compare(make())["max_abs_log_ratio"] == 0.0
    found = one.compare(other)
    assert not found["equal"]
    assert (found["common"], found["only_first"], found["only_second"]) == (1, 2, 1)
    assert found["median_abs_log_ratio"] == pytest.approx(abs(np.log(one.references[1] / 0.5)))
    apart = one.compare(make(tokens=(1,)))
    assert (apart["common"], apart["median_abs_log_ratio"], apart["largest_difference"]) == (0, None, None)


def test_what_differs_is_named():
    one = make()
    assert one.compare(make())["differ_in"] == one.compare(make())["about"] == []
    references, counts = one.references.copy(), one.counts.copy()
    references[1] /= 2
    counts[0] += 1
    weights = weights_of({"lm_head.weight": ONES})
    about = {
        **one.about,
        "prompt": "What?",
        "identity": {**one.about["identity"], "weights": weights},
    }
    for changed, names in (
        ({"b0": one.b0 * 2}, ["b0"]),
        ({"layer": 3}, ["layer"]),
        ({"counts": counts}, ["counts"]),
        ({"references": references}, ["references"]),
        ({"about": about}, ["what they were made with"]),
        ({"references": references, "counts": counts}, ["counts", "references"]),
    ):
        found = one.compare(replace(one, **changed))
        assert (found["equal"], found["differ_in"]) == (False, names)
    assert one.compare(make(tokens=(3, 18, 31999)))["differ_in"] == ["tokens"]
    found = one.compare(replace(one, references=references, counts=counts, about=about))
    assert (found["other_counts"], found["other_references"]) == (1, 1)
    assert found["largest_difference"] == {
        "token": int(one.tokens[1]),
        "first": one.references[1],
        "second": references[1],
    }
    said = " ".join(found["about"])
    assert "prompt: first " in said
    assert "second 'What?'" in said
    assert "weights: first 2 tensors of 32 numbers, second 1 tensors of 16 numbers" in said


class Hub:
    """A Hub of one repository: what is uploaded can be downloaded."""

    def __init__(self, store):
        self.store = store
        self.calls = []

    def api(self, token=None):
        self.calls.append(("token", token))
        return self

    def create_repo(self, repo_id, *, private, exist_ok):
        self.calls.append(("create", repo_id, private, exist_ok))
        return f"hub/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, commit_message, path_in_repo="", **more):
        self.calls.append(("upload", repo_id, commit_message, more))
        shutil.copytree(folder_path, self.store / path_in_repo, dirs_exist_ok=True)

    def snapshot_download(self, repo_id, *, revision, allow_patterns, **more):
        self.calls.append(("download", repo_id, revision, more))
        copied = self.store.parent / f"snapshot-{len(self.calls)}"
        for path in self.store.rglob("*"):
            name = path.relative_to(self.store)
            if path.is_file() and any(name.match(pattern) for pattern in allow_patterns):
                (copied / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copied / name)
        return str(copied)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    import huggingface_hub

    found = Hub(tmp_path / "store")
    monkeypatch.setattr(huggingface_hub, "HfApi", found.api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", found.snapshot_download)
    return found


def test_pushed_and_pulled_with_the_usual_verbs(hub):
    address = make().push_to_hub(
        "me/table", private=True, token="secret", commit_message="New", revision="dev"
    )
    assert address == "hub/me/table"
    assert hub.calls == [
        ("token", "secret"),
        ("create", "me/table", True, True),
        ("upload", "me/table", "New", {"revision": "dev"}),
    ]
    (hub.store / "README.md").write_text("not fetched")
    found = ReferenceTable.from_pretrained("me/table", revision="dev", token="secret")
    assert hub.calls[-1] == ("download", "me/table", "dev", {"token": "secret"})
    assert_same(found, make())


@pytest.mark.parametrize("name", ["./x", "../x/y", "./x/y", "/nowhere/x", "x", "x/y/z", "~/x", "a b/c"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(hub, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match=f"no folder {name}"):
        ReferenceTable.from_pretrained(name)
    assert not hub.calls


def test_a_hub_that_refuses_is_one_message(hub, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise ConnectionError("offline")

    monkeypatch.setattr(hub, "upload_folder", refuse)
    with pytest.raises(ArtifactError, match="ConnectionError") as caught:
        make().push_to_hub("me/table")
    assert "log in" in str(caught.value)


def test_several_layers_in_one_repository(hub):
    for layer in (1, 2):
        make(layer=layer).push_to_hub("me/table")
    assert ReferenceTable.from_pretrained("me/table", layer=2).layer == 2
    with pytest.raises(InputError, match="1, 2"):
        ReferenceTable.from_pretrained("me/table")


@pytest.mark.parametrize("name", ["no/such-table", "./not-here", "a/b/c/d"])
def test_a_table_that_is_nowhere(monkeypatch, name):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ArtifactError, match="Hub") as caught:
        ReferenceTable.from_pretrained(name)
    assert "reweigh calibrate" in str(caught.value)


def test_a_disk_that_is_full_leaves_the_old_table(tmp_path, monkeypatch):
    make().save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("reweigh.files.artifacts.os.fsync", full)
    with pytest.raises(ArtifactError, match="No space left"):
        make(tokens=(1, 2)).save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
