"""As torch.utils.data._utils.pin_memory, without memory to pin."""


def _pin_memory_loop(in_queue, out_queue, device_id, done_event, device):
    raise RuntimeError("no loader of this stand-in pins: it has no accelerator")
