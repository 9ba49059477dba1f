"""Caches what a data set makes of its samples, so that later epochs need not make it again."""
