"""A signal may come anywhere."""

from __future__ import annotations

import subprocess
import sys

STEPS = 25

AT_EVERY_STEP = f"""
import os, signal, sys, threading
from jetbridge.cli.stop_signal import StopSignal

def send():
    global sent
    if not sent:
        sent = True
        os.kill(os.getpid(), signal.SIGTERM)

for after in range({STEPS}):
    stop, left, sent = StopSignal(), after, False
    def trace(frame, event, argument):
        global left
        left -= 1
        if left < 0:
            send()
        return trace
    late = threading.Timer(0.1, send)
    late.start()
    sys.settrace(trace)
    stop.wait()
    sys.settrace(None)
    late.join()
print("stopped each time")
"""
TWICE = """
import os, signal
from jetbridge.cli.stop_signal import StopSignal
stop = StopSignal()
for _ in range(2):
    os.kill(os.getpid(), signal.SIGINT)
"""

WITH_A_THREAD = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from jetbridge.cli.stop_signal import leave
ThreadPoolExecutor(1).submit(threading.Event().wait)
print("stopped")
leave(at_once=True)
"""


def ran(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def test_a_signal_at_any_step_of_the_wait_ends_it() -> None:
    assert ran(AT_EVERY_STEP).stdout == "stopped each time\n"


def test_a_second_signal_ends_the_hard_way() -> None:
    assert "KeyboardInterrupt" in ran(TWICE).stderr


def test_a_thread_that_waits_for_something_does_not_keep_the_process() -> None:
    done = ran(WITH_A_THREAD)
    assert (done.returncode, done.stdout) == (0, "stopped\n")
