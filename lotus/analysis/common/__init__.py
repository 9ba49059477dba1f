"""The common base of analyses: columns, the scope of one loader, sums of samples and operations."""
