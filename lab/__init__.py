"""The VFIO lab: a virtual machine with an emulated IOMMU, in which stock libvirt gives emulated devices to real guests. See docs/lab.md."""
