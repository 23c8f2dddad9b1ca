"""Masks for annotation tools while people work in them."""
