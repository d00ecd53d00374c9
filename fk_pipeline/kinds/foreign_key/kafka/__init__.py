"""KIP-213 as Kafka Streams has it: instructions, messages and their bytes, and a reference in plain Python."""
