"""Networks and their weights. Importing this package first lets timm import beside any torch build."""

import tagmask.models.compat
