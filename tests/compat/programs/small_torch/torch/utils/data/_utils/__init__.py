"""As torch.utils.data._utils."""

from . import pin_memory as pin_memory
from . import worker as worker
