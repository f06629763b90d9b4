"""DCP and torch.save of the state that bench/checkpoint_bench.cc saves: llama-110m under FSDP2 with AdamW's moments, fp32, gloo.
Usage, under torchrun: checkpoint.py FOLDER ROUNDS [load RANKS_THAT_SAVED]      rank 0 prints a JSON line for each measurement.
With `load` FOLDER/dcp-N is loaded on as many ranks as torchrun has started; without, it is written (N: ranks) and everything measured."""
import os
import shutil
import sys
import threading

from common import *

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

folder, rounds = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = build("llama-110m")
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for p in model.parameters():
    p.grad = torch.randn_like(p)
optimizer.step()
optimizer.zero_grad()
weights, state = get_state_dict(model, optimizer)
tree = {"model": weights, "optim": state}


def local_bytes(node):
    if isinstance(node, dict):
        return sum(map(local_bytes, node.values()))
    if isinstance(node, list):
        return sum(map(local_bytes, node))
    if hasattr(node, "to_local"):
        node = node.to_local()
    return node.nbytes if isinstance(node, torch.Tensor) else 0


def local(node):
    if isinstance(node, dict):
        return {key: local(value) for key, value in node.items()}
    return node.to_local() if hasattr(node, "to_local") else node


total = torch.tensor(float(local_bytes(tree)))
dist.all_reduce(total)


def tell(what, seconds):
    if rank == 0:
        print(json.dumps({"system": "torch", "what": what, "seconds": round(seconds, 4), "bytes": int(total)}), flush=True)


def together(action):
    dist.barrier()
    begin = time.perf_counter()
    out = action()
    dist.barrier()
    return time.perf_counter() - begin, out


def forget(path):
    for root, _, names in os.walk(path):
        for name in names:
            fd = os.open(os.path.join(root, name), os.O_RDONLY)
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def load(path, what):
    if rank == 0:
        forget(path)
    tell(f"{what}, cold", together(lambda: dcp.load(tree, checkpoint_id=path))[0])
    tell(f"{what}, cached", together(lambda: dcp.load(tree, checkpoint_id=path))[0])


path = os.path.join(folder, f"dcp-{sys.argv[4] if len(sys.argv) > 4 else world}")
if len(sys.argv) > 3:
    load(path, f"load {sys.argv[4]} -> {world}")
else:
    group = dist.new_group(backend="gloo")
    for turn in range(rounds + 1):
        say = tell if turn > 0 else lambda *_: None
        if rank == 0:
            shutil.rmtree(path, ignore_errors=True)
        say("save", together(lambda: dcp.save(tree, checkpoint_id=path))[0])
        if world != 2:
            break
        plain = os.path.join(folder, f"torch-{rank}.pt")

        def torch_save():
            with open(plain, "wb") as file:
                torch.save(local(tree), file)
                file.flush()
                os.fsync(file.fileno())

        say("torch.save and fsync", together(torch_save)[0])
        os.remove(plain)
        begin = time.perf_counter()
        stall, future = together(lambda: dcp.async_save(tree, checkpoint_id=path + "-async", process_group=group))
        say("async stall", stall)
        future.result()
        say("async save", time.perf_counter() - begin)
        dist.barrier()
        if rank == 0:
            shutil.rmtree(path + "-async", ignore_errors=True)
        if turn > 0:
            load(path, "load 2 -> 2")
dist.destroy_process_group()
