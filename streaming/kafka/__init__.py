"""Apache Kafka: addresses, clients, topics, and the source that reads samples.

Needs the extra `kafka`.
"""
