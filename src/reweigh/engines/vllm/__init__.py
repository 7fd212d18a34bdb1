"""ReWEIGH inside vLLM: evidence read in the worker's own prefill, edits in its sampler. Needs the extra ``vllm``."""
