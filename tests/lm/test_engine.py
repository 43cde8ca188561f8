from concurrent.futures import ThreadPoolExecutor

from faith_dspy.lm import engine


def test_threads_that_begin_together_load_one_engine(tmp_path, monkeypatch):
    """It takes gigabytes."""
    loads = []
    monkeypatch.setattr(engine, "Engine", lambda path: loads.append(path) or object())
    with ThreadPoolExecutor(8) as pool:
        engines = {*pool.map(engine.engine_of, [tmp_path] * 8)}
    assert (len(loads), len(engines)) == (1, 1)
