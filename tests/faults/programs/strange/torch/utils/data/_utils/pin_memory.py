def _pin_memory_loop(in_queue, out_queue):
    pass
