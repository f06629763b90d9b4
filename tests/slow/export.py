#!/usr/bin/env python3
"""What Intarsia trains, transformers reads: the model of a run gives the same loss, gradients and token ids there.

Each fixture is trained on the rows of its reference.safetensors: two updates into one run, whose model transformers loads,
and a third with --dump-gradients in another run, so that both sides compute with weights that training has changed. With
--resize-vocab a run begins with the loss of transformers' own resize_token_embeddings, and its model is loaded likewise.
Usage: export.py PROGRAM [CASE...]      in the repository's root
"""
import json
import sys

from runs import FIXTURES, call, train, write_samples

import torch
import transformers
from cases import load, run_cases
from safetensors.torch import load_file

CASES = (
    "llama-gqa", "llama-tied", "llama-bf16", "llama-rope-old", "llama-rope-v5", "mistral-full", "mistral-window", "qwen2-tied",
    "qwen3", "gpt2", "gpt2-hub",
)  # fmt: skip
RESIZED = ("llama-gqa", "llama-tied", "gpt2", "gpt2-hub")
LOSS, GRADIENT, SMALLEST = 1e-5, 1e-4, 1e-6  # relative; of the tensor's largest magnitude; or absolute, where that is larger


def gradient_problems(found, model, deviations):
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    if "wte.weight" in found:  # the published GPT-2's names
        wanted = {name.removeprefix("transformer."): gradient for name, gradient in wanted.items()}
    if found.keys() != wanted.keys():
        return [f"gradients {sorted(found.keys() ^ wanted.keys())} are in only one of the two"]
    problems = []
    for name, gradient in wanted.items():
        if found[name].shape != gradient.shape or found[name].dtype != torch.float32:
            problems.append(f"gradient of {name}: {found[name].dtype} {list(found[name].shape)}, want fp32 {list(gradient.shape)}")
            continue
        largest, off = gradient.abs().max().item(), (found[name] - gradient).abs().max().item()
        deviations.note("gradient", off / largest)
        if not off <= max(GRADIENT * largest, SMALLEST):
            problems.append(f"gradient of {name} is off by {off:.1e}, its largest magnitude is {largest:.1e}")
    return problems


def case_problems(program, case, folder, deviations):
    reference = load_file(FIXTURES / case / "reference.safetensors")
    ids, labels = reference["input_ids"].long(), reference["labels"].long()
    samples = folder / "samples.safetensors"
    write_samples(samples, ids.numpy(), labels.numpy())
    flags = ["--model", FIXTURES / case / "model", "--data", samples, "--seq-len", ids.shape[1], "--ranks", 2, "--stage", 3]
    flags += ["--lr", 1e-3, "--weight-decay", 0.1]
    train(program, folder / "two", *flags, "--steps", 2)
    dump = folder / "gradients.safetensors"
    metrics = train(program, folder / "three", *flags, "--steps", 3, "--dump-gradients", dump, "--dump-step", 3)

    model, problems = load(folder / "two" / "model")
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    said = json.loads(call(program, "eval", "--model", folder / "two" / "model", "--data", samples, "--seq-len", ids.shape[1], "--json"))
    for what, value in {"intarsia eval": said["loss"], "third update": metrics[2]["loss"]}.items():
        off = abs(value - loss.item()) / loss.item()
        problems += deviations.problems(f"loss, {what}", off, LOSS, f"loss: {what} says {value}, transformers {loss.item()}")
    before = load(FIXTURES / case / "model")[0](input_ids=ids, labels=labels).loss.item()
    if not loss.item() < before:
        problems.append(f"two updates on the same rows took the loss from {before} to {loss.item()}; it should fall")
    problems += gradient_problems(load_file(dump), model, deviations)

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "two" / "model")
    for text in json.loads((FIXTURES / case / "reference.json").read_text())["tokenizer_cases"]:
        ids_now = tokenizer(text["text"], add_special_tokens=False)["input_ids"]
        if ids_now != text["ids"]:
            problems.append(f"tokenizer: {text['text']!r} became {ids_now}, want {text['ids']}")
    return problems


def resize_problems(program, case, folder, deviations):
    reference = load_file(FIXTURES / case / "reference.safetensors")
    ids, labels = reference["input_ids"].long(), reference["labels"].long()
    samples = folder / "samples.safetensors"
    write_samples(samples, ids.numpy(), labels.numpy())
    theirs = load(FIXTURES / case / "model")[0]
    rows = theirs.config.vocab_size + 9
    theirs.resize_token_embeddings(rows)
    wanted = theirs(input_ids=ids, labels=labels).loss.item()
    flags = ["--model", FIXTURES / case / "model", "--data", samples, "--ranks", 2, "--stage", 3, "--lr", 1e-3]
    metrics = train(program, folder / "resized", *flags, "--resize-vocab", rows, "--steps", 2)
    model, problems = load(folder / "resized" / "model")
    loss = model(input_ids=ids, labels=labels).loss.item()
    said = json.loads(call(program, "eval", "--model", folder / "resized" / "model", "--data", samples, "--json"))["loss"]
    shapes = [list(layer.weight.shape) for layer in (model.get_input_embeddings(), model.get_output_embeddings())]
    if model.config.vocab_size != rows or any(shape[0] != rows for shape in shapes):
        problems.append(f"config.json says {model.config.vocab_size} rows, the tensors are {shapes}, want {rows}")
    for what, value, other in (("resized, first loss", metrics[0]["loss"], wanted), ("resized, intarsia eval", said, loss)):
        problems += deviations.problems(what, abs(value - other) / other, LOSS, f"{what}: {value}, transformers {other}")
    return problems


def problems_of(program, case, folder, deviations):
    resized = resize_problems(program, case, folder, deviations) if case in RESIZED else []
    return case_problems(program, case, folder, deviations) + resized


if __name__ == "__main__":
    sys.exit(run_cases(sys.argv[1], sys.argv[2:] or CASES, problems_of))
