"""What every client of Kafka needs: where, how, and whether it is well."""
