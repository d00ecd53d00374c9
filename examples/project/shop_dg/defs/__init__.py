"""Components and definitions of the project."""
