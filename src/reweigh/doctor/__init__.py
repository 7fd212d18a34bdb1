"""Look at a model, an engine or a decoder before it is used, for ``reweigh doctor``."""
