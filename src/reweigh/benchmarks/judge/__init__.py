"""An LLM judge behind one small interface: chat or closed questions, paced, retried and cached."""
