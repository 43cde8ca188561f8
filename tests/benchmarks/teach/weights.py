"""The embedded model in PyTorch, from its GGUF or from pieces of it that are small enough to be carried one by one.

``python -m tests.benchmarks.teach.weights MODEL.gguf prompts.npz --out FOLDER``

The pieces hold the quantized bytes as they are in the file, of the embeddings only those rows that the prompts use. It
needs ``gguf``, ``torch`` and ``transformers``, and nothing of this project.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np

PIECE = 56 << 20
"""Bytes of a piece at most."""
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
"""What a block's tensors are called in the file, and in ``transformers``."""
TABLES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
}
CONFIG = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": False,
}
"""Qwen2.5-Coder-1.5B-Instruct, as its file's metadata give it; the tables are cut, so they are not tied."""


def torch_name(name: str) -> str:
    if name in TABLES:
        return TABLES[name]
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def tensors(
    path: Path, vocabulary: np.ndarray
) -> Iterator[tuple[str, int, np.ndarray]]:
    """Name, kind of quantization and bytes of each tensor; tables have the vocabulary's rows alone."""
    for tensor in gguf.GGUFReader(path).tensors:
        data = tensor.data
        if tensor.name in TABLES:
            data = data[vocabulary]
        yield (
            torch_name(tensor.name),
            int(tensor.tensor_type),
            np.ascontiguousarray(data),
        )


def write_pieces(path: Path, vocabulary: np.ndarray, folder: Path) -> None:
    """One long string of bytes, cut, and an index of what stands where."""
    folder.mkdir(parents=True, exist_ok=True)
    index, whole = [], bytearray()
    for name, kind, data in tensors(path, vocabulary):
        raw = data.tobytes()
        entry = {
            "name": name,
            "kind": kind,
            "dtype": str(data.dtype),
            "shape": data.shape,
            "start": len(whole),
        }
        index.append(entry | {"bytes": len(raw)})
        whole += raw
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    for number, start in enumerate(range(0, len(whole), PIECE)):
        (folder / f"{number:02d}.piece").write_bytes(whole[start : start + PIECE])
    print(f"{len(whole):,} bytes in {number + 1} pieces")


def read_pieces(folder: Path) -> Iterator[tuple[str, int, np.ndarray]]:
    whole = b"".join(path.read_bytes() for path in sorted(folder.glob("*.piece")))
    for entry in json.loads((folder / "index.json").read_text(encoding="utf-8")):
        values = np.frombuffer(
            whole,
            entry["dtype"],
            entry["bytes"] // np.dtype(entry["dtype"]).itemsize,
            entry["start"],
        )
        yield entry["name"], entry["kind"], values.reshape(entry["shape"])


def load(source: Path, vocabulary: np.ndarray) -> Any:
    """The model in bfloat16, from a GGUF or a folder of its pieces."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    def dequantized(item: tuple[str, int, np.ndarray]) -> tuple[str, Any]:
        name, kind, data = item
        values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType(kind))
        return name, torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)

    parts = read_pieces(source) if source.is_dir() else tensors(source, vocabulary)
    with ThreadPoolExecutor() as pool:
        state = dict(pool.map(dequantized, parts))
    config = Qwen2Config(vocab_size=len(vocabulary), **CONFIG)
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config)
    model.load_state_dict(state, assign=True, strict=True)
    # Computed, not stored: what the file does not hold is made anew.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    write_pieces(options.model, np.load(options.prompts)["vocabulary"], options.out)


if __name__ == "__main__":
    main()
