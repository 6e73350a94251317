"""Topics in a pipeline, without a JVM."""
