"""The demo: real flights and planes, a change stream captured from a real PostgreSQL."""
