"""What a user runs or puts into a pipeline: the command line and, with the extra `beam`, Apache Beam transforms."""
