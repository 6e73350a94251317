"""The options of commands and templates: what a user says, checked; and how it is refused."""
