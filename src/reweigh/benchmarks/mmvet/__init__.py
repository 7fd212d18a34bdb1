"""MM-Vet: ``questions`` reads its files, ``benchmark`` is graded by a chat judge, ``systemone`` by closed questions."""
