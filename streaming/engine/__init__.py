"""What the engines of agents and rounds share: the loop, intake, health, options."""
