"""The kinds of joins: one folder each. Only `registry` names them."""
