"""The hooks that observe and the recorder that writes."""
