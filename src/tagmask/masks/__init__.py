"""From maps to masks: pure functions on arrays and tensors."""
