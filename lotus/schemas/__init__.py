"""JSON Schemas of the documents that lotus prints and writes."""
