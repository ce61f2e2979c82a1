"""The product on real VFIO: guests of a real libvirt get emulated devices through an emulated IOMMU. See docs/lab.md."""
