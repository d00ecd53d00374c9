"""The kinds of joins, one folder per kind. Only `registry` names them."""
