"""Trains a LlamaForCausalLM of transformers through the engine, on the ranks that a launcher started.

Usage: train_llama.py MODEL SAMPLES CONFIG MICRO_BATCH STEPS [--recompute]
Rank 0 prints {"losses": [...], "norms": [...], "recomputed_runs": N}.
"""
import json
import sys

import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

import _intarsia  # after torch, whose libraries it takes
from units import initialize


def main():
    model_path, samples, config, micro_batch, steps = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(model_path, dtype=torch.float32, attn_implementation="sdpa", use_cache=False).train()
    blocks = [f"model.layers.{i}" for i in range(len(model.model.layers))]
    engine = initialize(model, blocks, config, recomputed="--recompute" in sys.argv)
    ids = load_file(samples)["input_ids"].long()
    ranks = len(ids) // (micro_batch * steps)
    losses, norms = [], []
    for step in range(steps):
        begin = (step * ranks + engine.rank()) * micro_batch
        rows = ids[begin : begin + micro_batch]
        engine.start_forward()
        engine.backward(model(input_ids=rows, labels=rows).loss)
        engine.step()
        losses.append(engine.last_loss())
        norms.append(engine.last_norm())
    if engine.rank() == 0:
        print(json.dumps({"losses": losses, "norms": norms, "recomputed_runs": _intarsia.recomputed_runs()}), flush=True)


if __name__ == "__main__":
    main()
