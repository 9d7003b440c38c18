"""How networks compute fast what `modules` says: the paper needs none of it."""
