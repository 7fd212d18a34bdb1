"""Register: learn each token's typical evidence from unlabeled images and keep only stable references."""
