// SPDX-License-Identifier: GPL-2.0-only
/*
 * A PCI card that can be given away in parts, as a GPU with vGPUs is: the parts are those of the kernel's mtty sample, but their
 * parent is a PCI function, and each card has places of its own. Of mtty.c everything is used but its own start and end.
 */
#include <linux/module.h>
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma push_macro("module_init")
#pragma push_macro("module_exit")
#undef module_init
#undef module_exit
#define module_init(function)
#define module_exit(function)
#include "mtty.c"
#pragma pop_macro("module_init")
#pragma pop_macro("module_exit")

#define CARD_PORTS 4

struct card {
	struct mdev_parent parent;
	struct mtty_type types[ARRAY_SIZE(mtty_types)];
	struct mdev_type *list[ARRAY_SIZE(mtty_types)];
	atomic_t free_ports;
};

static int ports_of(struct mdev_type *type)
{
	return container_of(type, struct mtty_type, type)->nr_ports;
}

static struct card *card_of(struct mdev_type *type)
{
	return container_of(type->parent, struct card, parent);
}

static unsigned int labvgpu_available(struct mdev_type *type)
{
	return atomic_read(&card_of(type)->free_ports) / ports_of(type);
}

static int labvgpu_probe_part(struct mdev_device *mdev)
{
	struct card *card = card_of(mdev->type);
	int ports = ports_of(mdev->type), error;

	if (atomic_sub_return(ports, &card->free_ports) < 0)
		error = -ENOSPC;
	else
		error = mtty_probe(mdev);
	if (error)
		atomic_add(ports, &card->free_ports);
	return error;
}

static void labvgpu_remove_part(struct mdev_device *mdev)
{
	mtty_remove(mdev);
	atomic_add(ports_of(mdev->type), &card_of(mdev->type)->free_ports);
}

static int labvgpu_probe(struct pci_dev *function, const struct pci_device_id *id)
{
	struct card *card = kzalloc(sizeof(*card), GFP_KERNEL);
	int error;

	if (!card)
		return -ENOMEM;
	atomic_set(&card->free_ports, CARD_PORTS);
	memcpy(card->types, mtty_types, sizeof(card->types));
	for (int i = 0; i < ARRAY_SIZE(card->types); i++)
		card->list[i] = &card->types[i].type;
	error = mdev_register_parent(&card->parent, &function->dev, &mtty_driver, card->list, ARRAY_SIZE(card->list));
	if (error)
		kfree(card);
	else
		pci_set_drvdata(function, card);
	return error;
}

static void labvgpu_remove(struct pci_dev *function)
{
	struct card *card = pci_get_drvdata(function);

	mdev_unregister_parent(&card->parent);
	kfree(card);
}

/* QEMU's bochs-display: of the class of GPUs (docs/specs/standard-vga.rst). */
static const struct pci_device_id labvgpu_ids[] = { { PCI_DEVICE(0x1234, 0x1111) }, { } };

static struct pci_driver labvgpu_driver = {
	.name = "labvgpu",
	.id_table = labvgpu_ids,
	.probe = labvgpu_probe,
	.remove = labvgpu_remove,
};

static int __init labvgpu_init(void)
{
	int error;

	mtty_driver.driver.name = "labvgpu_mdev"; /* mtty itself may be loaded as well */
	mtty_driver.probe = labvgpu_probe_part;
	mtty_driver.remove = labvgpu_remove_part;
	mtty_driver.get_available = labvgpu_available;
	error = mdev_register_driver(&mtty_driver);
	if (error)
		return error;
	error = pci_register_driver(&labvgpu_driver);
	if (error)
		mdev_unregister_driver(&mtty_driver);
	return error;
}

static void __exit labvgpu_exit(void)
{
	pci_unregister_driver(&labvgpu_driver);
	mdev_unregister_driver(&mtty_driver);
}

module_init(labvgpu_init);
module_exit(labvgpu_exit);
MODULE_DEVICE_TABLE(pci, labvgpu_ids);
