"""A small LLaVA of pretrained parts, trained on any folder of captioned photographs with a laptop's processor."""
