"""What a kernel costs on a device: one module per resource and per class of device."""
