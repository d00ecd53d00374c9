"""The protocol of KIP-213: instructions and the row hash."""
