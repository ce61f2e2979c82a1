"""Runs in L1: takes commands from the lab over a virtio port, many at a time, and answers with their output.

A line in: {"id", "command", "timeout"}; a line out: {"id", "code", "output"}. The command is for sh; its output is
what it wrote to standard output and standard error, and code -1 says that the time was over.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from typing import Any

PORT = "/dev/virtio-ports/lab"

writing = threading.Lock()


def serve(port: int) -> None:
    pending = b""
    while True:
        data = os.read(port, 65536)
        if not data:  # the other end is free: reading returns at once until somebody takes it
            pending = b""
            time.sleep(0.2)
            continue
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            threading.Thread(target=work, args=(port, json.loads(line)), daemon=True).start()


def work(port: int, request: dict[str, Any]) -> None:
    process = subprocess.Popen(
        ["/bin/sh", "-c", request["command"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=request["timeout"])
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        code = -1
    response = {"id": request["id"], "code": code, "output": output.decode(errors="replace")}
    data = json.dumps(response).encode() + b"\n"
    with writing, contextlib.suppress(OSError):  # whoever asked may be gone
        while data:  # the port takes 32 KiB at a time
            data = data[os.write(port, data) :]


serve(os.open(PORT, os.O_RDWR))
