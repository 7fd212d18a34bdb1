"""``python -m reweigh`` is the ``reweigh`` command."""

from reweigh.cli.app import main

main()
