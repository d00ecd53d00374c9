"""The same join in a project that is laid out with `dg`: a component in `defs/joins`."""
