"""The entry point that makes ``lmms-eval --model reweigh`` work.

    lmms-eval --model reweigh --model_args pretrained=llava-hf/llava-1.5-7b-hf,table=FOLDER,beta=1.1 --tasks pope

Kept apart from the model class, so that lmms-eval can list its models without loading anything heavy.
"""

from __future__ import annotations

from typing import Any

MODEL = "reweigh"
CLASS = "reweigh.integrations.lmms_eval_model.ReweighModel"


def manifest() -> Any:
    """Tell lmms-eval which class to load for ``--model reweigh``."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(model_id=MODEL, chat_class_path=CLASS)
