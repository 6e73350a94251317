"""Where events go: files, folders, standard output; each declares who can read it."""
