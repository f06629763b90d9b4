"""Fine-tunes a Hugging Face model on conversations, with transformers, PEFT and DeepSpeed: what `intarsia train --pack concat
--shuffle off` does from the same JSON. Run by run.py under torchrun.

Usage: peer.py MODEL CONFIG.json TRAIN.jsonl HELD_OUT.jsonl SEQ STEPS OUT.json [ADAPTER]
ADAPTER: a PEFT directory with the adapter to begin from; without one all parameters are trained. OUT.json gets the losses of the
updates, the held-out losses before and after, and the median step."""
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
from common import *
os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
from transformers import AutoTokenizer
name, config, train_file, held_out_file, seq, steps, out = sys.argv[1:8]
seq, steps = int(seq), int(steps)


def samples(tokenizer, path, whole):
    """ids and labels [N, seq] of the conversations one after another; labels of what the assistant wrote. The rest that fills no
    sample is left out, or filled up with `whole`."""
    ids, labels = [], []
    for line in open(path):
        messages = json.loads(line)["messages"]
        def render(upto, opened): return tokenizer.apply_chat_template(messages[:upto], tokenize=False, add_generation_prompt=opened)
        spans = [(len(render(i, True)), len(render(i + 1, False))) for i, m in enumerate(messages) if m["role"] == "assistant"]
        told = tokenizer(render(len(messages), False), add_special_tokens=False, return_offsets_mapping=True)
        for token, (begin, end) in zip(told["input_ids"], told["offset_mapping"]):
            ids.append(token)
            labels.append(token if any(begin < e and end > b for b, e in spans) else -100)
    if whole:
        fill = -len(ids) % seq
        ids, labels = ids + [0] * fill, labels + [-100] * fill
    rows = len(ids) // seq
    return [torch.tensor(x[: rows * seq]).view(rows, seq) for x in (ids, labels)]


torch.set_num_threads(1)
deepspeed.init_distributed("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
tokenizer = AutoTokenizer.from_pretrained(name)
m = build(name)
if len(sys.argv) > 8:
    from peft import PeftModel
    m = PeftModel.from_pretrained(m, sys.argv[8], is_trainable=True, autocast_adapter_dtype=False)
cfg = json.load(open(config)) | {"steps_per_print": 10**9}
engine, _, _, _ = deepspeed.initialize(model=m, model_parameters=[p for p in m.parameters() if p.requires_grad], config=cfg)
micro = engine.train_micro_batch_size_per_gpu()


def held_out():
    """The mean over all counted tokens."""
    ids, labels = samples(tokenizer, held_out_file, True)
    engine.eval()
    total = torch.zeros(2, dtype=torch.float64)
    for at in range(0, len(ids), world):
        row = min(at + rank, len(ids) - 1)  # all ranks enter the same modules
        with torch.no_grad():
            loss = engine(input_ids=ids[row : row + 1], labels=labels[row : row + 1], num_items_in_batch=1).loss
        if at + rank < len(ids): total += torch.tensor([loss.item(), (labels[row, 1:] != -100).sum().item()], dtype=torch.float64)
    dist.all_reduce(total)
    engine.train()
    return (total[0] / total[1]).item()


before = held_out()
ids, labels = samples(tokenizer, train_file, False)
losses, times = [], []
for step in range(steps):
    t = time.time()
    window = [(step * micro * world + i) % len(ids) for i in range(micro * world)]
    counted = (labels[window][:, 1:] != -100).sum()
    mine = window[rank * micro : (rank + 1) * micro]
    # As transformers' Trainer: the mean over the tokens of all ranks.
    loss = engine(input_ids=ids[mine], labels=labels[mine], num_items_in_batch=counted).loss * world
    engine.backward(loss); engine.step()
    mean = loss.detach().double(); dist.all_reduce(mean)
    losses.append(mean.item() / world); times.append(time.time() - t)
    if rank == 0: print(f"step {step + 1} loss {losses[-1]:.4f} {times[-1]:.1f} s", file=sys.stderr, flush=True)
after = held_out()
if rank == 0:
    json.dump({"losses": losses, "before": before, "after": after, "step_seconds": sorted(times[2:])[len(times[2:]) // 2],
               "samples": len(ids)}, open(out, "w"))
