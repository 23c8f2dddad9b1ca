"""Networks and their weights. Importing this package first lets timm import beside any torch."""

import tagmask.models.compat
