"""SQL over topics, statement by statement: what ``segreader sql`` runs, and what ``segreader shell`` asks for."""
