"""MMHal-Bench: ``questions`` reads its files, ``benchmark`` is rated by a chat judge, ``systemone`` by closed questions."""
