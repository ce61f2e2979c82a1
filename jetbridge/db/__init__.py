"""Tables, migrations and queries: the only room that writes SQL."""
