"""``reweigh doctor``: what was found inside a model, and whether the lens can be trusted on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def doctor(
    model: str = common.MODEL,
    image: Path = typer.Argument(None, help="A sample picture; a plain made one if not given."),
    *,
    template: str = common.TEMPLATE,
    weights: common.Weights,
    json: bool = common.JSON,
) -> None:
    """Print the anatomy found, the visual positions of a sample image and the parity verdict.

    Exit code 1 if the model cannot be served.
    """
    loaded, processor = weights.load(model)
    report = examine(loaded, processor, image, template)
    if json:
        common.emit_json(report)
    else:
        _print(report)
    if not report["parity"]["holds"]:
        raise typer.Exit(1)


def examine(model: Any, processor: Any, image: Path | None, template: str | None) -> dict[str, Any]:
    """Everything ``doctor`` knows of a model, as plain values."""
    from reweigh.engines.transformers.parity import lens_parity
    from reweigh.families.anatomy import find_anatomy
    from reweigh.families.prompts import DESCRIBE, build_inputs
    from reweigh.images import read_image
    from reweigh.method.measure.evidence import measure
    from reweigh.method.measure.kernels import unused_numba
    from reweigh.method.measure.lens import Lens
    from reweigh.method.measure.ranks import choose_kernel, kernel_names

    anatomy = find_anatomy(model)
    names = {id(module): name for name, module in model.named_modules()}
    picture = read_image(image) if image is not None else _sample()
    inputs = build_inputs(model, processor, [picture], [DESCRIBE], template=template)
    evidence = measure(model, inputs)[0]
    parity = lens_parity(model, inputs)
    tolerance = 1e-4 if str(model.dtype) == "torch.float32" else 0.05
    device = next(model.parameters()).device
    kernel = choose_kernel("auto", device, model.dtype, anatomy.vocab_size, None)
    columns = evidence.columns if evidence is not None else ()
    places = [place for place in (evidence.patches if evidence is not None else ()) if place is not None]
    return {
        "class": type(model).__name__,
        "family": anatomy.family,
        "blocks": {"path": names.get(id(anatomy.blocks), "?"), "count": len(anatomy.blocks)},
        "norm": names.get(id(anatomy.norm), "?"),
        "head": names.get(id(anatomy.head), "?"),
        "vocabulary": anatomy.vocab_size,
        "image_tokens": list(anatomy.image_tokens),
        "dtype": str(model.dtype).removeprefix("torch."),
        "lens_dtype": Lens(anatomy).dtype,
        "device": str(device),
        "visual_positions": {
            "prompt_length": int(inputs["input_ids"].shape[1]),
            "count": len(columns),
            "first": columns[0] if columns else None,
            "last": columns[-1] if columns else None,
            "tiles": sorted({(place.tile, place.rows, place.cols) for place in places}),
        },
        "kernel": {
            "chosen": kernel.name,
            "known": list(kernel_names()),
            "faster": None
            if device.type != "cpu" or (why := unused_numba()) is None
            else f"{why.message}; {why.hint}",
        },
        "parity": {
            "holds": parity.holds(tolerance),
            "positions": parity.positions,
            "max_difference": parity.max_difference,
            "disagreement": parity.disagreement,
            "rank_agreement": parity.rank_agreement,
            "between_blocks": list(parity.between_blocks),
        },
    }


def _sample() -> Any:
    """A made picture with some structure; what it shows does not matter for the wiring."""
    from PIL import Image

    return Image.radial_gradient("L").resize((224, 224)).convert("RGB")


def _print(report: dict[str, Any]) -> None:
    visual, parity = report["visual_positions"], report["parity"]
    tiles = ", ".join(f"tile {tile}: {rows}x{cols}" for tile, rows, cols in visual["tiles"]) or "no grid"
    lines = [
        f"{report['class']} (family {report['family']}, {report['dtype']} on {report['device']})",
        f"  blocks      {report['blocks']['path']} ({report['blocks']['count']})",
        f"  final norm  {report['norm']}",
        f"  head        {report['head']} ({report['vocabulary']:,} tokens, lens in {report['lens_dtype']})",
        f"  image token {', '.join(map(str, report['image_tokens']))}",
        f"  visual positions of the sample: {visual['count']} of {visual['prompt_length']}, "
        f"columns {visual['first']} to {visual['last']} ({tiles})",
        f"  ranking kernel {report['kernel']['chosen']} (known: {', '.join(report['kernel']['known'])})",
        *(
            [f"    a faster one is not used: {report['kernel']['faster']}"]
            if report["kernel"]["faster"]
            else []
        ),
        f"  lens parity: largest difference {parity['max_difference']:.3g}, "
        f"rank agreement {parity['rank_agreement']:.4f} at {parity['positions']} positions",
    ]
    if parity["between_blocks"]:
        lines.append(f"  adds to the stream after blocks {parity['between_blocks']}; read after the addition")
    lines.append(
        "verdict: "
        + ("supported" if parity["holds"] else "NOT supported: the lens is not this model's output path")
    )
    typer.echo("\n".join(lines))
