"""This machine's (or another's) real libvirt behind the hypervisor seam."""

from jetbridge.virt.libvirt.connection import LibvirtConnection
from jetbridge.virt.libvirt.files import LocalHostFiles

__all__ = ["LibvirtConnection", "LocalHostFiles"]
