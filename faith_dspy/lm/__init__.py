"""Language models: any DSPy/LiteLLM model string, or the embedded one; counted, identified, checked before use."""

EMBEDDED_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""Of the model file that ``local`` stands for."""
