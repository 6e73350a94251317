"""What all tests of commands and of Beam have."""

from tests.fitted_once import fitted_once  # noqa: F401 - fixture
