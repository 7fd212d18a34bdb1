"""What every engine shares: requests, forward passes as decoders see them, and remembered evidence."""
