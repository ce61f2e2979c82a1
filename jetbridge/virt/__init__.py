"""The hypervisor seam: node-device XML in, domain XML out."""
