"""Evidence: what the implemented mechanisms prove of the privacy that they claim, counted or sampled."""
