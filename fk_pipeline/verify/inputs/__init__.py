"""An independent reader of the landing files, which tells whether the changelogs have what landed."""
