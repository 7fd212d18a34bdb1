"""``python -m reweigh`` is the ``reweigh`` command."""

from reweigh.cli.start import main

main()
