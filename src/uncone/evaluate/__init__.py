"""Does it matter: word and sentence similarity, retrieval, quantised search."""
