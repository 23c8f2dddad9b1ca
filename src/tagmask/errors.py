"""The exceptions whose messages a user is meant to read."""


class TagmaskError(Exception):
    """A mistake that the user can correct; the message names the file or value and the remedy."""


class ImageError(TagmaskError):
    """One image or mask cannot be used; the others can."""
