"""ReWEIGH on mlx-vlm models: ``hooks`` shows a model's passes to a decoder, ``generation`` builds inputs and answers.

MLX computes; PyTorch ranks and edits on the CPU with the functions that every engine uses. MLX is imported only when one
of its models is used.
"""

from __future__ import annotations

from typing import Any

from reweigh.errors import InputError, MissingExtraError, first_line


def load(name: str, *, revision: str | None = None, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """Load ``(model, processor)`` with mlx-vlm, in the type in which the checkpoint is stored.

    From then on, transformers' ``AutoProcessor`` returns mlx-vlm's own processors.
    """
    try:
        from mlx_vlm import load as load_mlx
    except ImportError as error:
        raise MissingExtraError("running a model on MLX", "mlx", "mlx-vlm") from error
    try:
        model, processor = load_mlx(name, revision=revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"mlx-vlm cannot load {name} ({first_line(error):.200})",
            hint="pass a Hub id, or a folder laid out like a released checkpoint, as mlx-vlm reads it",
        ) from error
    return model, processor
