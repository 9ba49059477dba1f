"""A loader's epochs made again from their own times, with other settings."""
