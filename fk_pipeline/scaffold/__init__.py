"""`fk-pipeline init`: a new pipeline folder, its pipeline file written from samples of the user's own data."""
