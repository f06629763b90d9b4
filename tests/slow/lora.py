"""LoRA from end to end against PEFT: it loads the adapter that `intarsia train` wrote, computes the loss that `intarsia eval
--adapter` says, and its merged logits are those of the model that `intarsia convert` merged.

Usage: lora.py PROGRAM"""
import json
import pathlib
import sys
import tempfile
import time

from runs import FIXTURES, RunFailed, call, train, write_samples

try:
    import numpy as np
    import torch
    import transformers
    from peft import PeftModel
except ImportError as absent:
    print(f"SKIPPED: {absent}; run ./dev test-slow, which makes an environment that has it and sets INTARSIA_PYTHON")
    sys.exit(77)

LOGITS, LOSS = 1e-5, 1e-5  # of the largest logit; relative
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "llama-gqa": {"r": 4, "alpha": 10, "targets": ALL},
    "qwen2-tied": {"r": 3, "alpha": 4},
    "gpt2": {"r": 4, "alpha": 8, "targets": ["c_attn", "c_proj"]},
    "gpt2-hub": {"r": 2, "alpha": 8},
}


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def case_problems(program, case, lora, folder, worst):
    problems = []
    base = FIXTURES / case / "model"
    vocabulary = json.loads((base / "config.json").read_text())["vocab_size"]
    rows = np.random.default_rng(5).integers(0, vocabulary, (8, 24))
    data, run, merged = folder / "rows.safetensors", folder / "run", folder / "merged"
    write_samples(data, rows, rows)
    metrics = train(program, run, "--model", base, "--data", data, "--lora", json.dumps(lora), "--ranks", 2, "--stage", 3,
                    "--batch-size", 4, "--steps", 6, "--lr", 2e-2)
    call(program, "convert", run / "model", merged, "--to", "hf", "--model", base)

    ids = torch.from_numpy(rows)
    adapted = PeftModel.from_pretrained(load(base), run / "model").eval()
    with torch.no_grad():
        plain = load(base)(input_ids=ids).logits
        beside = adapted(input_ids=ids).logits
        theirs = adapted.merge_and_unload()(input_ids=ids).logits
        ours = load(merged)(input_ids=ids).logits
    largest = theirs.abs().max().item()
    for what, other in {"merged here": ours, "not merged": beside}.items():
        off = (other - theirs).abs().max().item() / largest
        worst[f"logits, {what}"] = max(worst.get(f"logits, {what}", 0.0), off)
        if not off <= LOGITS:
            problems.append(f"logits {what} are {off} from PEFT's merged ones")
    if not (plain - theirs).abs().max().item() > 100 * LOGITS * largest:
        problems.append("the adapter changed nothing")

    def loss(logits):
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()

    said = json.loads(call(program, "eval", "--model", base, "--adapter", run / "model", "--data", data, "--json"))["loss"]
    off = abs(said - loss(theirs)) / loss(theirs)
    worst["loss, intarsia eval --adapter"] = max(worst.get("loss, intarsia eval --adapter", 0.0), off)
    if not off <= LOSS:
        problems.append(f"intarsia eval says {said}, PEFT {loss(theirs)}")
    if not said < metrics[0]["loss"]:
        problems.append(f"six updates took the loss from {metrics[0]['loss']} to {said}; it should fall")
    return problems


def main():
    program, cases = sys.argv[1], sys.argv[2:] or list(CASES)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    begin, failed, worst = time.monotonic(), 0, {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                problems = case_problems(program, case, CASES[case], pathlib.Path(folder), worst)
            except RunFailed as failure:
                problems = [str(failure)]
        for problem in problems:
            print(f"FAILED: {case:15} {problem}")
        failed += bool(problems)
    for name, value in sorted(worst.items()):
        print(f"largest relative deviation: {name:30} {value:.1e}")
    print(f"{len(cases)} models, {failed} of them with problems, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
