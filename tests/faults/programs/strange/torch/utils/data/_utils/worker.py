class ExceptionWrapper:
    pass


def _worker_loop():
    pass
