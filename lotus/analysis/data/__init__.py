"""The division of the data among the workers, and repeated samples."""
