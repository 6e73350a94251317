"""What rounds are made of.

The protocol, sizes, localization, and stages that several estimators share.
"""
