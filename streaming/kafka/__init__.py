"""Apache Kafka: addresses, clients, topics, and the source that reads samples; needs the extra `kafka`."""
