"""As torch.utils."""
