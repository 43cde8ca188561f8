"""Teach the verdict: low-rank changes to all projections, from prompts and weights that lie in two files or folders.

``python -m tests.benchmarks.teach.train MODEL prompts.npz --out FOLDER [--seconds 300] [--limit 64]``

The loss is the right label's first token, over the vocabulary that the prompts use. Every second batch also has joint
replies, and holds the model to its untaught self: in the middle of prompts, after small talk, and in the replies that
it wrote untaught to prompts that ask for more than a label. It runs on a GPU in minutes; on two cores in hours, and
there it goes on where it stopped. ``--start`` goes on from an earlier course's factors. Before and after, it writes the
log-odds of Yes against No for the prompts that are only measured on. ``--limit`` is a dry run.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import (
    LoraConfig,
    get_peft_model,
    get_peft_model_state_dict,
    set_peft_model_state_dict,
)
from peft.helpers import disable_input_dtype_casting
from safetensors.torch import load_file, save_file

from . import weights

RANK = 4
SCALE = 2.0
"""What the product of the two factors is multiplied by while it is learned; it is part of what is saved."""
LEARNING_RATE = 2e-4
WARM_UP = 0.05
"""Share of the course."""
BATCH = 64
"""Prompts of a step."""
OTHERS_EVERY, OTHERS = 2, 8
"""How often a step has prompts of the other parts, and how many of each."""
KEEP_WEIGHT, KEEP_PLACES = 0.5, 768
"""How much, and in how many places of prompts and replies, the model is held to its untaught self."""
REPLY_TOKENS = 160
"""Tokens of a reply that the untaught model writes, at most."""
SAVE_EVERY = 50
"""Steps."""


class Prompts:
    """The prompts of a file, by part."""

    def __init__(self, path: Path) -> None:
        file = np.load(path)
        self.vocabulary = file["vocabulary"]
        self.tokens = np.split(file["tokens"].astype(np.int64), file["ends"][:-1])
        self.targets = file["targets"]
        self.parts = file["parts"]
        self.rows = file["rows"]
        self.starts = file["starts"]
        self.yes, self.no = (int(i) for i in file["yes_no"])
        self.end = int(file["end"])
        """The token that ends a reply."""

    def of(self, *parts: str) -> list[int]:
        return np.flatnonzero(np.isin(self.parts, parts)).tolist()

    def padded(self, numbers: list[int], device: str) -> tuple[Any, Any]:
        """Token ids, filled up at the end, where causal attention never looks; the place of each last one."""
        lengths = [len(self.tokens[n]) for n in numbers]
        ids = np.zeros((len(numbers), max(lengths)), np.int64)
        for row, n in enumerate(numbers):
            ids[row, : lengths[row]] = self.tokens[n]
        return torch.from_numpy(ids).to(device), torch.tensor(
            lengths, device=device
        ) - 1


def batches(prompts: Prompts, numbers: list[int], room: int) -> Iterator[list[int]]:
    """Prompts of about equal length, as many as have room."""
    ordered = sorted(numbers, key=lambda n: len(prompts.tokens[n]))
    batch: list[int] = []
    for n in ordered:
        if batch and (len(batch) + 1) * len(prompts.tokens[n]) > room:
            yield batch
            batch = []
        batch.append(n)
    yield batch


def last_states(model: Any, ids: Any, last: Any) -> tuple[Any, Any]:
    states = model.base_model.model.model(
        input_ids=ids, use_cache=False
    ).last_hidden_state
    return states, states[torch.arange(len(last), device=last.device), last]


def log_odds(
    model: Any, prompts: Prompts, numbers: list[int], room: int, device: str
) -> np.ndarray:
    """Log-odds of Yes against No, in the order of ``numbers``."""
    values = {}
    head = model.base_model.model.lm_head
    with torch.inference_mode():
        for batch in batches(prompts, numbers, room):
            logits = head(last_states(model, *prompts.padded(batch, device))[1]).float()
            difference = logits[:, prompts.yes] - logits[:, prompts.no]
            values.update(zip(batch, difference.tolist(), strict=True))
    return np.array([values[n] for n in numbers], np.float32)


def kept_loss(model: Any, ids: Any, where: Any) -> Any:
    """Kullback-Leibler divergence from the untaught model, in places of the prompts: rows of number and position."""
    with torch.no_grad(), model.disable_adapter():
        untaught, _ = last_states(model, ids, where[:1, 1])
    states, _ = last_states(model, ids, where[:1, 1])
    head = model.base_model.model.lm_head
    now, then = (
        head(s[where[:, 0], where[:, 1]]).float().log_softmax(-1)
        for s in (states, untaught)
    )
    return torch.nn.functional.kl_div(now, then, log_target=True, reduction="batchmean")


def places(ids: Any, starts: list[int], last: Any, without: list[int]) -> Any:
    """Rows of number and position, from the start to before the last token of each; before no token of some."""
    positions = torch.arange(ids.shape[1] - 1, device=ids.device)[None]
    first = torch.tensor(starts, device=ids.device)[:, None]
    inside = (positions >= first) & (positions < last[:, None])
    labels = torch.tensor(without, device=ids.device)
    where = (inside & ~torch.isin(ids[:, 1:], labels)).nonzero()
    return where[torch.randperm(len(where), device=ids.device)[:KEEP_PLACES]]


def write_replies(
    model: Any, prompts: Prompts, numbers: list[int], device: str
) -> None:
    """Append the untaught model's own reply to each prompt."""
    base = model.base_model.model
    for n in numbers:
        prompts.starts[n] = len(prompts.tokens[n])
    with torch.inference_mode(), model.disable_adapter():
        for batch in batches(prompts, numbers, 48_000 if device == "cuda" else 2_000):
            width = max(len(prompts.tokens[n]) for n in batch)
            ids = np.full((len(batch), width), prompts.end, np.int64)
            mask = np.zeros_like(ids)
            for row, n in enumerate(batch):
                ids[row, width - len(prompts.tokens[n]) :] = prompts.tokens[n]
                mask[row, width - len(prompts.tokens[n]) :] = 1
            written = base.generate(
                input_ids=torch.from_numpy(ids).to(device),
                attention_mask=torch.from_numpy(mask).to(device),
                max_new_tokens=REPLY_TOKENS,
                do_sample=False,
                eos_token_id=prompts.end,
                pad_token_id=prompts.end,
            )[:, width:].cpu()
            for n, reply in zip(batch, written.numpy(), strict=True):
                ends = np.flatnonzero(reply == prompts.end)
                length = ends[0] + 1 if len(ends) else len(reply)
                prompts.tokens[n] = np.concatenate([prompts.tokens[n], reply[:length]])


def rate(progress: float) -> float:
    """The learning rate's share: up in a line, down in a cosine."""
    fall = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return min(1.0, progress / WARM_UP) * fall


class Course:
    """One pass over the prompts, ended in time: the learning rate falls by the clock or by what is left."""

    def __init__(
        self, model: Any, prompts: Prompts, options: argparse.Namespace, device: str
    ) -> None:
        self.model, self.prompts, self.options, self.device = (
            model,
            prompts,
            options,
            device,
        )
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=options.rate, weight_decay=0.0, betas=(0.9, 0.99)
        )
        self.small_talk = prompts.of("small_talk")
        self.written = prompts.of("written")
        self.joint = prompts.of("joint")
        self.labels = sorted({int(t) for t in prompts.targets if t >= 0})
        self.step = 0
        self.state = options.out / "state"

    def restore(self) -> None:
        """Go on where a course stopped."""
        if (self.state / "adapter.safetensors").is_file():
            set_peft_model_state_dict(
                self.model, load_file(self.state / "adapter.safetensors")
            )
            saved = torch.load(self.state / "optimizer.pt", weights_only=True)
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step = saved["step"]

    def save(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        save_file(
            get_peft_model_state_dict(self.model), self.state / "adapter.safetensors"
        )
        torch.save(
            {"optimizer": self.optimizer.state_dict(), "step": self.step},
            self.state / "optimizer.pt",
        )

    def run(self) -> None:
        """Train, and print how the loss falls and what it is on sources that are only measured."""
        options = self.options
        numbers = self.prompts.of("train")
        random.Random(0).shuffle(numbers)
        numbers = numbers[: options.limit or None]
        steps = math.ceil(len(numbers) / BATCH)
        started, first, loss, right = time.monotonic(), self.step, 0.69, 0.5
        for self.step in range(first, steps):
            elapsed = time.monotonic() - started
            progress = max(
                (self.step + 1) / steps,
                elapsed / options.seconds if options.seconds else 0.0,
            )
            if progress >= 1.0 and self.step + 1 < steps:
                break
            for group in self.optimizer.param_groups:
                group["lr"] = options.rate * rate(progress)
            some = numbers[self.step * BATCH : (self.step + 1) * BATCH]
            mean, share = self.learn(some)
            loss, right = 0.95 * loss + 0.05 * mean, 0.95 * right + 0.05 * share
            if self.step % 10 == 0:
                speed = (self.step + 1 - first) * BATCH / (time.monotonic() - started)
                print(
                    f"{self.step}/{steps} loss {loss:.3f} right {right:.3f} {speed:.0f} prompts/s",
                    flush=True,
                )
            if self.step % 100 == 99:
                print(f"{self.step} {self.validation()}", flush=True)
            if options.resume and self.step % SAVE_EVERY == SAVE_EVERY - 1:
                self.save()

    def learn(self, numbers: list[int]) -> tuple[float, float]:
        """One step; its mean loss, and the share of labels that were the likeliest."""
        total, right = 0.0, 0
        head = self.model.base_model.model.lm_head
        for batch in batches(self.prompts, numbers, self.options.room):
            ids, last = self.prompts.padded(batch, self.device)
            targets = torch.tensor(
                self.prompts.targets[batch], device=self.device
            ).long()
            logits = head(last_states(self.model, ids, last)[1]).float()
            loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
            (loss / len(numbers)).backward()
            total += loss.item()
            right += (logits.argmax(-1) == targets).sum().item()
        if self.step % OTHERS_EVERY == 0 and self.small_talk:
            self.learn_others(numbers)
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total / len(numbers), right / len(numbers)

    def learn_others(self, numbers: list[int]) -> None:
        """Add the gradients of the other parts; ``numbers`` are the step's own prompts."""
        chance = random.Random(self.step)

        def some(part: list[int]) -> list[int]:
            return chance.sample(part, min(OTHERS, len(part)))

        parts = [
            (self.small_talk_loss, some(self.small_talk)),
            (self.written_loss, some(self.written) + numbers[:4]),
            (self.joint_loss, some(self.joint)),
        ]
        for loss, chosen in parts:
            for batch in batches(self.prompts, chosen, self.options.room):
                (loss(batch) * len(batch) / len(chosen)).backward()

    def small_talk_loss(self, numbers: list[int]) -> Any:
        ids, last = self.prompts.padded(numbers, self.device)
        ends = torch.stack([torch.arange(len(last), device=self.device), last], 1)
        return kept_loss(self.model, ids, ends)

    def written_loss(self, numbers: list[int]) -> Any:
        ids, last = self.prompts.padded(numbers, self.device)
        starts = self.prompts.starts[numbers].tolist()
        return KEEP_WEIGHT * kept_loss(
            self.model, ids, places(ids, starts, last, self.labels)
        )

    def joint_loss(self, numbers: list[int]) -> Any:
        ids, last = self.prompts.padded(numbers, self.device)
        starts = (self.prompts.starts[numbers] - 1).tolist()
        where = places(ids, starts, last, [])
        states, _ = last_states(self.model, ids, last)
        head = self.model.base_model.model.lm_head
        logits = head(states[where[:, 0], where[:, 1]]).float()
        targets = ids[where[:, 0], where[:, 1] + 1]
        return torch.nn.functional.cross_entropy(logits, targets)

    def validation(self) -> str:
        numbers = self.prompts.of("validation")[: self.options.limit or None]
        odds = log_odds(
            self.model, self.prompts, numbers, self.options.room, self.device
        )
        yes = self.prompts.targets[numbers] == self.prompts.yes
        loss = np.logaddexp(0, np.where(yes, -odds, odds)).mean()
        return f"validation: loss {loss:.3f}, right {((odds > 0) == yes).mean():.3f} of {len(numbers)}"


def factor_names(model: Any) -> dict[str, str]:
    """Names of the factors in the model's state → in a file: the tensor's in the GGUF, and ``.A`` or ``.B``."""
    gguf_names = {name: part for part, name in weights.NAMES.items()}
    names = {}
    for name in get_peft_model_state_dict(model):
        place, _, factor = name.removeprefix(
            "base_model.model.model.layers."
        ).rpartition(".lora_")
        layer, _, projection = place.partition(".")
        names[name] = f"blk.{layer}.{gguf_names[projection]}.{factor[0]}"
    return names


def save_adapter(model: Any, path: Path, about: dict[str, str]) -> None:
    """Write both factors of each change in 16 bits. The change is ``B @ A``: the scale is in ``B``."""
    names = factor_names(model)
    factors = {}
    for name, value in get_peft_model_state_dict(model).items():
        scaled = value * SCALE if names[name].endswith(".B") else value
        factors[names[name]] = scaled.to(torch.float16).contiguous()
    save_file(factors, path, about)


def start_from(model: Any, path: Path) -> None:
    """Put the factors of a file into the model."""
    factors = load_file(path)
    state = {}
    for name, in_file in factor_names(model).items():
        value = factors[in_file].float()
        state[name] = value / SCALE if in_file.endswith(".B") else value
    set_peft_model_state_dict(model, state)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="the GGUF, or a folder of its pieces")
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, help="the course ends after this time")
    parser.add_argument(
        "--limit", type=int, default=0, help="training prompts, for a dry run"
    )
    parser.add_argument(
        "--room", type=int, default=0, help="tokens that are computed at once"
    )
    parser.add_argument("--rate", type=float, default=LEARNING_RATE)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the state, and go on where it stopped",
    )
    parser.add_argument("--start", type=Path, help="factors of an earlier course")
    parser.add_argument(
        "--measure", nargs="*", help="parts to measure on; default: all"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options.room = options.room or (12_288 if device == "cuda" else 512)
    started = time.monotonic()
    prompts = Prompts(options.prompts)
    model = weights.load(options.model, prompts.vocabulary).to(device)
    targets = [
        *{name.rpartition(".")[2] for name in weights.NAMES.values() if "proj" in name}
    ]
    lora = LoraConfig(
        r=RANK, lora_alpha=RANK * SCALE, lora_dropout=0.0, target_modules=targets
    )
    model = get_peft_model(model, lora)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    print(f"loaded in {time.monotonic() - started:.0f} s on {device}", flush=True)
    others = {"train", "validation", "small_talk", "written", "joint"}
    measured = prompts.of(*(options.measure or {*prompts.parts} - others))

    def measure() -> np.ndarray:
        with (
            torch.autocast(device, torch.bfloat16, cache_enabled=False),
            disable_input_dtype_casting(model),
        ):
            return log_odds(model, prompts, measured, options.room * 4, device)

    raw = measure() if measured else None
    print(f"measured by {time.monotonic() - started:.0f} s", flush=True)
    written = prompts.of("written")[: options.limit or None]
    write_replies(model, prompts, written, device)
    print(f"replies written by {time.monotonic() - started:.0f} s", flush=True)
    if options.start:
        start_from(model, options.start)
    course = Course(model, prompts, options, device)
    if options.resume:
        course.restore()
    with (
        torch.autocast(device, torch.bfloat16, cache_enabled=False),
        disable_input_dtype_casting(model),
    ):
        print("before", course.validation(), flush=True)
        course.run()
        print("after", course.validation(), flush=True)
    about = {
        "rank": str(RANK),
        "rate": str(options.rate),
        "steps": str(course.step + 1),
    }
    save_adapter(model, options.out / "adapter.safetensors", about)
    if measured:
        arrays = {
            "raw": raw,
            "taught": measure(),
            "rows": prompts.rows[measured],
            "parts": prompts.parts[measured],
        }
        np.savez_compressed(options.out / "log_odds.npz", **arrays)
    summary = {"seconds": round(time.monotonic() - started), "device": device, **about}
    (options.out / "course.json").write_text(json.dumps(summary), encoding="utf-8")
    print(summary)


if __name__ == "__main__":
    main()
