"""Google Cloud Pub/Sub in a pipeline."""
