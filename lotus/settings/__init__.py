"""A loader's setting, spaces of settings, and tuned.json."""
