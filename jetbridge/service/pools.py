"""How pools of threads end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor


def ended_in_time(pool: ThreadPoolExecutor, seconds: float) -> bool:
    """Shut it down, let what it has be done, and wait for that at most ``seconds``; False: it takes longer, what hasn't begun is dropped."""
    ending = threading.Thread(target=pool.shutdown, name="ending", daemon=True)
    ending.start()
    ending.join(seconds)
    if ending.is_alive():
        pool.shutdown(wait=False, cancel_futures=True)
        return False
    return True
