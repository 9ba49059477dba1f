"""What a loader, or a job of many ranks, would do under another setting."""
