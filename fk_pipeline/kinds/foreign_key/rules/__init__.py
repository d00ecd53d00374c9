"""The rules of the foreign-key join: the expectations of each stage, and the views of its tables that check them."""
