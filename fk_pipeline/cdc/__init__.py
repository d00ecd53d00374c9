"""Change data capture: landing files, formats, order, quarantine."""
