"""Teach the embedded model the verdict: prompts as token ids, its weights in PyTorch, low-rank training on both."""
