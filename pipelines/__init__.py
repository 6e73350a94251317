"""What a user runs or puts into a pipeline.

The command line and, with the extra `beam`, Apache Beam transforms.
"""

if __name__ != "meanstream.pipelines":
    raise ImportError(
        f"{__name__} is imported by its full name: import meanstream.pipelines instead"
    )
