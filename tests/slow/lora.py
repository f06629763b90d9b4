"""LoRA from end to end against PEFT: it loads the adapter that `intarsia train` wrote, computes the loss that `intarsia eval
--adapter` says, and its merged logits are those of the model that `intarsia convert` merged.

Usage: lora.py PROGRAM"""
import json
import sys

from runs import FIXTURES, call, train, write_samples

try:
    import numpy as np
    import torch
    from cases import load, run_cases
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


def merged_problems(base, adapter, merged, ids, deviations):
    """What is wrong with the logits of an adapter's directory in PEFT, beside its base and merged into it, and of the directory
    that `intarsia convert` merged; and PEFT's merged logits."""
    adapted = PeftModel.from_pretrained(load(base)[0], adapter).eval()
    with torch.no_grad():
        plain = load(base)[0](input_ids=ids).logits
        beside = adapted(input_ids=ids).logits
        theirs = adapted.merge_and_unload()(input_ids=ids).logits
        model, problems = load(merged)
        ours = model(input_ids=ids).logits
    largest = theirs.abs().max().item()
    for what, other in {"merged here": ours, "not merged": beside}.items():
        off = (other - theirs).abs().max().item() / largest
        problems += deviations.problems(f"logits, {what}", off, LOGITS, f"logits {what} are not PEFT's merged ones")
    if not (plain - theirs).abs().max().item() > 100 * LOGITS * largest:
        problems.append("the adapter changed nothing")
    return problems, theirs


def case_problems(program, case, folder, deviations):
    base = FIXTURES / case / "model"
    vocabulary = json.loads((base / "config.json").read_text())["vocab_size"]
    rows = np.random.default_rng(5).integers(0, vocabulary, (8, 24))
    data, run, merged = folder / "rows.safetensors", folder / "run", folder / "merged"
    write_samples(data, rows, rows)
    metrics = train(program, run, "--model", base, "--data", data, "--lora", json.dumps(CASES[case]), "--ranks", 2, "--stage", 3,
                    "--batch-size", 4, "--steps", 6, "--lr", 2e-2)
    call(program, "convert", run / "model", merged, "--to", "hf", "--model", base)
    ids = torch.from_numpy(rows)
    problems, theirs = merged_problems(base, run / "model", merged, ids, deviations)

    def loss(logits):
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()

    said = json.loads(call(program, "eval", "--model", base, "--adapter", run / "model", "--data", data, "--json"))["loss"]
    off = abs(said - loss(theirs)) / loss(theirs)
    problems += deviations.problems("loss, intarsia eval --adapter", off, LOSS, f"intarsia eval says {said}, PEFT {loss(theirs)}")
    if not said < metrics[0]["loss"]:
        problems.append(f"six updates took the loss from {metrics[0]['loss']} to {said}; it should fall")
    return problems


if __name__ == "__main__":
    sys.exit(run_cases(sys.argv[1], sys.argv[2:] or CASES, case_problems))
