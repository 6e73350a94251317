"""What rounds are made of: the protocol, sizes, localization, and stages that several estimators share."""
