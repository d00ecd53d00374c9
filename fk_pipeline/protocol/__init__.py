"""The protocol of KIP-213: instructions, row hashes, Kafka's messages and a reference in plain Python."""
