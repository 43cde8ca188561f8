"""How the embedded model's engine is loaded."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from faith_dspy.lm import engine


@pytest.fixture
def folder(tmp_path):
    """A model whose logits are the token itself, with the inputs of a converted one."""
    inputs = {}
    for name in ("input_ids", "attention_mask", "position_ids"):
        inputs[name] = ops.parameter([-1, -1], np.int64, name=name)
    inputs["beam_idx"] = ops.parameter([-1], np.int32, name="beam_idx")
    for name, node in inputs.items():
        node.output(0).set_names({name})
    ids = ops.convert(inputs["input_ids"], "f32")
    product = ops.matmul(
        ops.unsqueeze(ids, ops.constant([2])),
        ops.constant(np.ones((1, 8), np.float32)),
        False,
        False,
    )
    model = ov.Model([ops.result(product)], list(inputs.values()))
    ov.save_model(model, tmp_path / "openvino_model.xml", compress_to_fp16=False)
    return tmp_path


def test_the_fastest_way_is_measured_once(folder, monkeypatch):
    """Where there is a choice, it is kept beside the model for this processor, and counts from then on."""
    engine._fastest_request(folder)
    can_halve = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    kept = [*folder.glob("*.fastest")]
    assert len(kept) == can_halve
    loaded = []
    load = engine._load_way
    monkeypatch.setattr(
        engine, "_load_way", lambda *way: loaded.append(way[2]) or load(*way)
    )
    for name in ("half", "quantized") if kept else ():
        kept[0].write_text(name)
        engine._fastest_request(folder)
        assert loaded.pop() == name
        assert loaded == []


def test_threads_that_begin_together_load_one_engine(folder, monkeypatch):
    """It takes gigabytes."""
    made = []
    monkeypatch.setattr(engine, "Engine", lambda path: made.append(path) or object())
    with ThreadPoolExecutor(8) as pool:
        engines = [*pool.map(engine.engine_of, [folder] * 8)]
    assert (len(made), len(set(engines))) == (1, 1)
