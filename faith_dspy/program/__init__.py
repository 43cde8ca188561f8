"""The DSPy program inside a judge: signatures, adapter, replies, modules."""
