"""Language models: any DSPy/LiteLLM model string, or the embedded one; counted, identified, checked before use."""
