"""A rank of a peer that goes on from a checkpoint which `intarsia convert` wrote: FSDP2 with DCP, FSDP2 through Accelerate's loaders, or
DeepSpeed with load_universal. Run by go_back.py under torchrun.

Usage: peer_goes_on.py SYSTEM MODEL CHECKPOINT SAMPLES FIRST STEPS JOB
SYSTEM: dcp | dcp-flat | accelerate | ds-1 | ds-2 | ds-3. MODEL: a Hugging Face directory, of which only config.json is read: weights are
random until the checkpoint is loaded. SAMPLES: safetensors with input_ids. FIRST: the row where the steps begin. JOB: JSON of micro, lr, wd,
eps, betas, clip, torch_adam. Rank 0 prints a JSON line: losses (means over the ranks), lr, step.
What loads the checkpoint is the Python of docs/checkpoints.md, as it stands there, but for dcp-flat, which the page has in words only.
"""
import json
import os
import pathlib
import re
import sys
import types

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

system, folder, checkpoint, samples, first, steps, job = sys.argv[1:8]
job = json.loads(job)
torch.set_num_threads(1)
torch.manual_seed(7)  # other weights than the checkpoint's
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32, attn_implementation="eager").train()


def from_page(name, names):
    """Runs the Python block of the page that loads "NAME", with the test's checkpoint in its place; what it defines is added to `names`."""
    page = (pathlib.Path(__file__).parents[2] / "docs/checkpoints.md").read_text()
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f'"{name}"' in block]
    exec(compile(block.replace(f'"{name}"', repr(checkpoint)), "docs/checkpoints.md", "exec"), names)
    return names


def groups(parameters):
    """Matrices with decay, then vectors without: what --no-decay-1d makes."""
    parameters = list(parameters)
    return [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": job["wd"]},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}]


def batches():
    ids = load_file(samples)["input_ids"].long()
    world, micro = dist.get_world_size(), job["micro"]
    for step in range(int(steps)):
        begin = int(first) + (step * world + dist.get_rank()) * micro
        yield ids[begin : begin + micro]


def report(losses, lr, step):
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(json.dumps({"losses": (mean / dist.get_world_size()).tolist(), "lr": lr, "step": step}), flush=True)


def fsdp2():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    if system == "accelerate":
        from accelerate import PartialState

        PartialState(cpu=True)  # opens the process group
    else:
        dist.init_process_group("gloo")
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(groups(model.parameters()), lr=0.5, betas=(0.1, 0.2), eps=0.3)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)  # gives the groups an initial_lr, as a schedule does
    if system == "accelerate":
        from accelerate.utils import FullyShardedDataParallelPlugin
        from accelerate.utils.fsdp_utils import load_fsdp_model, load_fsdp_optimizer

        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
        rank = types.SimpleNamespace(wait_for_everyone=dist.barrier, process_index=dist.get_rank(), is_main_process=dist.get_rank() == 0)
        from_page("back-accelerate", {**locals(), "model": model, "accelerator": rank})
    elif system == "dcp":
        from_page("back-dcp", {**globals(), **locals()})
    else:
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        weights, state = get_state_dict(model, optimizer, options=options)
        tree = {"model": weights, "optim": state}
        dcp.load(tree, checkpoint_id=checkpoint)
        set_state_dict(model, optimizer, model_state_dict=tree["model"], optim_state_dict=tree["optim"], options=options)
    lr = [group["lr"] for group in optimizer.param_groups]
    step = {state["step"].item() for state in optimizer.state.values()}
    assert all(group["eps"] == job["eps"] and tuple(group["betas"]) == tuple(job["betas"]) for group in optimizer.param_groups)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [job["wd"], 0.0]
    losses = []
    for ids in batches():
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    report(losses, lr, sorted(step))


def deepspeed_runs():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.init_distributed("gloo")
    config = {
        "train_micro_batch_size_per_gpu": job["micro"], "gradient_clipping": job["clip"], "steps_per_print": 10**9,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.5, "betas": job["betas"], "eps": job["eps"], "weight_decay": 0.3, "torch_adam": job["torch_adam"]}},
        "zero_optimization": {"stage": int(system[3:])},
    }  # fmt: skip
    names = {**locals(), "model": model, "groups": groups(model.parameters())}
    engine = from_page("back-deepspeed", names)["engine"]
    assert engine.global_steps > 0
    lr = [group["lr"] for group in engine.optimizer.param_groups]
    step = engine.global_steps
    if system == "ds-3":  # which gives every group the numbers of the first
        engine.optimizer.optimizer.param_groups[1]["weight_decay"] = 0.0
    losses = []
    for ids in batches():
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    report(losses, lr, step)


deepspeed_runs() if system.startswith("ds-") else fsdp2()
dist.destroy_process_group()
