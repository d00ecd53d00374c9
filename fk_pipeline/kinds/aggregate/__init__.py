"""Tables grouped by something that is not their key, and streams counted in windows of time."""
