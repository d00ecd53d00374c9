"""The windowed join of two streams as Kafka Streams does it, event by event. No Spark."""
