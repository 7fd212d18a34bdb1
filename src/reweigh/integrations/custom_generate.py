"""ReWEIGH for `model.generate`: fewer words in the answer that the picture does not support.

    model.generate(**inputs, custom_generate="FOLDER-OR-REPOSITORY", trust_remote_code=True, table="FOLDER-OR-REPOSITORY")

`reweigh table export` copies this file to `custom_generate/generate.py` beside a reference table. transformers runs the
copy from a cache of modules, where it cannot see the table, so the table is named: by the caller, by TABLE, or by lying in
the model's own folder.
"""

from typing import Any

TABLE = None


def generate(
    model: Any,
    table: Any = None,
    beta: Any = None,
    layer: Any = None,
    processor: Any = None,
    **arguments: Any,
) -> Any:
    """Generate with ReWEIGH.

    Args:
        model: The vision-language model that the table was calibrated on.
        table: Folder or Hub repository of the reference table.
        beta: Maximum penalty in logits; by default the one recorded with the table, else the paper's.
        layer: Which of several tables to use.
        processor: The model's processor; by default the one beside the model.
        arguments: Everything else goes to the model's own `generate`.
    """
    import reweigh

    # transformers passes on arguments that were not given, as None
    given = {name: value for name, value in arguments.items() if value is not None}
    source = table or TABLE or model.name_or_path
    return reweigh.attach(model, processor, table=source, beta=beta, layer=layer).generate(**given)
