"""Language models: any DSPy/LiteLLM model string, or the embedded one; counted, identified, checked before use."""

from hashlib import sha256

TAUGHT_SHA256 = "51af9b4b025fc876d9a47eb173588a95f11aa8a4f59035e110ba3812c9c23328"
"""Of the file with what the embedded model was taught."""
_PUBLISHED_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
LOCAL_SHA256 = {
    "local": sha256((_PUBLISHED_SHA256 + TAUGHT_SHA256).encode()).hexdigest(),
    "local:raw": _PUBLISHED_SHA256,
}
"""Who answers under a model string: of the published file; for the taught model, of its sum and that of what it was
taught."""
