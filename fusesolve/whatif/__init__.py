"""What-if studies: sweeps over hardware numbers, thresholds of the plan, sensitivities, searches for a target."""
