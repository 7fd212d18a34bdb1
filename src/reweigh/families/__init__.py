"""Model families: where a vision-language model keeps its parts and its image positions."""
