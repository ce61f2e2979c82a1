"""A RabbitMQ node of the tests' own: a temporary folder, free ports, loopback, an unprivileged user, nothing left behind."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import kombu

from tests.servers.certificates import Certificates

# The scripts of the Debian package that don't change to the user rabbitmq.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS = 120.0
STOP_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class RabbitNode:
    """``url`` is a transport_url, ``tls_url`` one for TLS, by ``certificates``. ``restart`` keeps address and durable queues."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jetbridge-rabbitmq-"))
        self.port = free_port()
        self.tls_port = free_port()
        self.certificates = Certificates(self.folder)
        self._name_port = free_port()
        self._names: subprocess.Popen[bytes] | None = None
        self._node: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)

    @property
    def tls_url(self) -> str:
        return f"rabbit://guest:guest@127.0.0.1:{self.tls_port}/"

    @property
    def url(self) -> str:
        return f"rabbit://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        certificates = self.certificates
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.ssl.default = 127.0.0.1:{self.tls_port}\nssl_options.cacertfile = {certificates.ca_file}\n"
            f"ssl_options.certfile = {certificates.cert_file}\nssl_options.keyfile = {certificates.key_file}\n"
            "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = false\n"
        )
        if self._names is None:
            # Erlang's name service would be started as a daemon that nobody ends.
            names = shutil.which("epmd")
            assert names is not None, "epmd is missing: scripts/setup test installs rabbitmq-server with it"
            self._names = self._spawn([names, "-port", str(self._name_port), "-address", "127.0.0.1"])
        self._node = self._spawn([str(SERVER)])
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._node.poll() is None, f"RabbitMQ ended:\n{self._log()}"
            assert time.monotonic() < end, f"RabbitMQ does not answer:\n{self._log()}"
            time.sleep(0.2)

    def stop(self) -> None:
        """The node ends in order, keeping what is durable."""
        _end(self._node, signal.SIGTERM)
        self._node = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        _end(self._names, signal.SIGTERM)
        self._names = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def waiting(self, queue: str) -> int | None:
        """How many messages wait in a queue that nobody has taken; None: there is no such queue."""
        with kombu.Connection(self.url.replace("rabbit:", "amqp:")) as connection:
            channel = connection.channel()
            with suppress(connection.channel_errors):
                return int(channel.queue_declare(queue, passive=True).message_count)
            return None

    def forget(self, *queues: str) -> None:
        """Queues go with what waits in them, so that the next test finds none."""
        with kombu.Connection(self.url.replace("rabbit:", "amqp:")) as connection:
            for name in queues:
                connection.channel().queue_delete(name)

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        # Whatever ends the tests ends the server; setpriv is in util-linux. The signal comes when the thread ends that asks for it
        # (prctl(2), PR_SET_PDEATHSIG), so that has to be the one that lives longest.
        assert threading.current_thread() is threading.main_thread()
        wrapper = ["setpriv", "--pdeathsig", "TERM"]
        if os.geteuid() == 0:
            wrapper += ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        with (self.folder / "output.log").open("ab") as output:
            return subprocess.Popen(
                [*wrapper, "--", *command],
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "PATH": os.environ["PATH"],
            "HOME": folder,  # of the cookie
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._name_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "tests@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/none.env",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            # One scheduler that doesn't spin: the machine has other things to do.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _answers(self) -> bool:
        url = self.url.replace("rabbit:", "amqp:")
        try:
            with kombu.Connection(url, connect_timeout=2) as connection:
                connection.connect()
                return True
        except (OSError, *kombu.Connection(url).connection_errors):
            return False

    def _log(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")[-3000:]


def _end(process: subprocess.Popen[bytes] | None, how: signal.Signals) -> None:
    if process is None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
