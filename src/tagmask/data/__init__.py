"""Catalog, readers of folders, VOC and COCO, images, corrections, the built-in scenes."""
