"""The options of commands: what a user says, checked; and how it is refused."""
