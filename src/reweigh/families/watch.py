"""Notice that a model changed after it was identified: weights written to or replaced, adapters switched, settings changed.

Cheap enough for once a generation: PyTorch counts writes to a tensor. Writes through ``.data``, which it does not count,
and weights that accelerate keeps elsewhere are not noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from reweigh.families.settings import current_settings
from reweigh.families.weights import active_adapters, adapter_layers, plain_name
from reweigh.families.wrappers import unwrap


class Watch:
    """Remembers a model and its processor; ``changed`` reports whether they have changed.

    >>> from torch import nn
    >>> layer = nn.Linear(2, 2)
    >>> watch = Watch(layer)
    >>> _ = nn.init.zeros_(layer.bias)
    >>> watch.changed()
    'bias was changed'
    """

    def __init__(self, model: Any, processor: Any = None) -> None:
        self.model = unwrap(model)[0]
        self.processor = processor
        self._kept = dict(self._weights())  # also keeps their addresses from being used again
        self._marks = self._now()

    def changed(self) -> str | None:
        """What changed first, in words, or ``None``."""
        before, now = self._marks, self._now()
        name = next((name for name in {**before, **now} if before.get(name) != now.get(name)), None)
        return None if name is None else f"{name} was changed"

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        for path, module in self.model.named_modules():
            for key, tensor in (*module._parameters.items(), *module._buffers.items()):
                passing = key in module._non_persistent_buffers_set  # computed anew, no weight
                if tensor is not None and not passing and not tensor.is_meta:
                    yield plain_name(f"{path}.{key}" if path else key), tensor

    def _now(self) -> dict[str, Any]:
        marks = current_settings(getattr(self.model, "config", None), self.processor)
        marks |= {
            name: (
                id(tensor),
                tensor.data_ptr(),
                tensor.dtype,
                None if tensor.is_inference() else tensor._version,
            )
            for name, tensor in self._weights()
        }
        adapters = ((path, active_adapters(layer)) for path, layer in adapter_layers(self.model))
        return marks | {f"the choice of adapters of {plain_name(path)}": active for path, active in adapters}
