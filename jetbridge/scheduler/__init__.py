"""Which host: snapshot, filters, weighers, selection."""
