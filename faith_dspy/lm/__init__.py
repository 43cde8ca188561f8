"""Language models: any DSPy/LiteLLM model string, or the embedded one; counted, identified, checked before use."""

import os
from hashlib import sha256

# Without this LiteLLM asks the network for a list of prices when it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

TAUGHT_SHA256 = "ff7a5489db333bf473fc7f7529eba5865f8193b005d14a44c19adfcac976de66"
"""Of the file with what the embedded model was taught."""
_PUBLISHED_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
LOCAL_SHA256 = {
    "local": sha256((_PUBLISHED_SHA256 + TAUGHT_SHA256).encode()).hexdigest(),
    "local:raw": _PUBLISHED_SHA256,
}
"""Who answers under a model string: of the published file; for the taught model, of its sum and that of what it was
taught."""
