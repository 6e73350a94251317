"""Where samples come from: files of several formats, and a synthetic stream."""
