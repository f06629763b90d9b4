"""DeepSpeed's own all-reduce over shared memory (the one of its CPU inference), 2 processes, fp32: microseconds a call.

Usage: shm_all_reduce.py [ROUNDS]. Compiles DeepSpeed's extension at the first call, which takes minutes.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank_main(rank: int, rounds: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_SIZE="2",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29577")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder
    op = ShareMemCommBuilder().load()
    op.initialize(2, rank)
    for size in (64 << 10, 1 << 20, 64 << 20):
        tensor = torch.ones(size // 4)
        repeat = max(1, min(200, (8 << 20) // size))
        seconds = []
        for turn in range(rounds + 1):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(repeat):
                torch.ops.deepspeed.inference_all_reduce_(tensor)
            if turn > 0:
                seconds.append((time.perf_counter() - start) / repeat)
        if rank == 0:
            print(f"{size >> 10} KiB: {1e6 * statistics.median(seconds):.1f} us", flush=True)
        assert tensor[0] > 1
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, args=(int(sys.argv[1]) if len(sys.argv) > 1 else 7,), nprocs=2)
