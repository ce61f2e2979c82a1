"""What is done to a device between two servers."""

from __future__ import annotations

from oslo_config import cfg

from jetbridge.config.setting import Setting

SETTINGS = (
    Setting(
        "pci",
        "pci_cleaner",
        cfg.StrOpt(
            "cleaner",
            help="A command that the host's agent runs after a server has given a device back, with the device's address as its last "
            "word. The device is given to nobody until the command has ended with exit code 0; if it fails, the device stays out and "
            "`jetbridge devices` says why. For example /usr/local/bin/wipe-gpu --full.",
        ),
        "a command such as /usr/local/bin/wipe-gpu --full",
    ),
    Setting(
        "pci",
        "pci_cleaner_timeout",
        cfg.IntOpt(
            "cleaner_timeout",
            min=1,
            help="After so many seconds the cleaner is ended with all that it started, and has failed. What a cleaner that ended in "
            "time leaves running in the background is not waited for.",
        ),
        "a whole number of at least 1",
    ),
)
