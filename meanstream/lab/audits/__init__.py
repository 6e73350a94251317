"""`meanstream audit`: what the code that runs proves of the privacy that it claims."""
