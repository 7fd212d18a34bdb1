"""Run the cells of examples/notebook.ipynb from top to bottom and write what they show back into it.

python scripts/notebook.py
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from reweigh.files.artifacts import write_text

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


def show(value: Any) -> dict[str, Any]:
    """What a notebook stores of a cell's last value: plain text, and HTML or a picture if available."""
    data: dict[str, Any] = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_()
    if hasattr(value, "_repr_png_"):
        data["text/plain"] = f"<picture of {value.width} x {value.height} pixels>"
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
    return data


def run_cell(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Execute one cell with the names of earlier cells; return its outputs."""
    tree = ast.parse(source)
    last: ast.expr | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1].value
        tree.body.pop()
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last), f"cell {count}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        kept = {
            "output_type": "execute_result",
            "execution_count": count,
            "metadata": {},
            "data": show(value),
        }
        outputs.append(kept)
    return outputs


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Execute every code cell in order and replace its outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(code, 1):
        cell["execution_count"] = count
        cell["outputs"] = run_cell("".join(cell["source"]), names, count)
    return notebook


if __name__ == "__main__":
    done = run(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    write_text(NOTEBOOK, json.dumps(done, indent=1, ensure_ascii=False) + "\n")
