"""Mathematics of the paper on tensors: views, consistency losses, gradients, localisation maps."""
