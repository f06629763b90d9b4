#!/usr/bin/env python3
"""What `intarsia plan` predicts beside what `intarsia train` measures, for generated runs on this host.

  bench/plan_accuracy.py memory [COUNT [SEED]]  peak of a rank by the meter, and of the host by the kernel
  bench/plan_accuracy.py limits [COUNT]   random runs inside a control group around what plan says: do they fit? (root)
  bench/plan_accuracy.py time [ROUNDS]    step time of twelve runs, after `intarsia bench --write-cluster` in each round
  bench/plan_accuracy.py deepspeed        states by DeepSpeed's estimator formulas and by plan, beside the meter

Prints Markdown tables, and exits with 1 where what issue and documents promise does not hold. The program is
build/bin/intarsia, or INTARSIA_PROGRAM. Every run has at least 64 MiB a rank. Fixed seeds.
"""
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading

MIB = 1 << 20
PROGRAM = os.environ.get("INTARSIA_PROGRAM", "build/bin/intarsia")
WORK = tempfile.mkdtemp()

# name: hidden, feed-forward, layers, heads, key/value heads, vocabulary, tied
MODELS = {
    "deep": (256, 704, 12, 4, 4, 1024, False),
    "wide": (256, 704, 4, 4, 4, 16384, False),
    "grouped": (512, 1408, 4, 8, 2, 2048, False),
    "tied": (384, 1024, 6, 6, 6, 8192, True),
    "llama-34m": (512, 1408, 8, 8, 8, 8192, False),
    "llama-60m": (640, 1728, 8, 10, 10, 16384, False),
}
LORA = {"r": 8, "alpha": 16, "targets": ["q_proj", "v_proj", "down_proj"]}


def write_models():
    for name, (hidden, ffn, layers, heads, kv_heads, vocab, tied) in MODELS.items():
        os.makedirs(f"{WORK}/{name}", exist_ok=True)
        config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": ffn,
                  "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
                  "max_position_embeddings": 1024, "tie_word_embeddings": tied}
        with open(f"{WORK}/{name}/config.json", "w") as out:
            json.dump(config, out)


def samples(length):
    """Ready samples, 64 rows of `length` tokens below 256."""
    path = f"{WORK}/samples-{length}.safetensors"
    if not os.path.exists(path):
        random.seed(length)
        body = struct.pack(f"<{64 * length}i", *(random.randrange(256) for _ in range(64 * length)))
        head = json.dumps({"input_ids": {"dtype": "I32", "shape": [64, length], "data_offsets": [0, len(body)]}}).encode()
        with open(path, "wb") as out:
            out.write(struct.pack("<Q", len(head)) + head + body)
    return path


def flags_of(run):
    flags = ["--model", f"{WORK}/{run['model']}", "--init", "random", "--stage", run["stage"], "--ranks", run["ranks"],
             "--dtype", run["dtype"], "--batch-size", run["batch"], "--seq-len", run["length"], "--accumulation",
             run["accumulation"], "--threads", 1]
    if run["recompute"] != "none":
        flags += ["--recompute", run["recompute"]]
    if run["copied"]:
        flags += ["--force-copy"]
    if run.get("lora"):
        flags += ["--lora", json.dumps(LORA)]
    return [str(flag) for flag in flags]


def predict(run, *more, group=None):
    out = subprocess.run([PROGRAM, "plan", "--json", *flags_of(run), *more], check=True, capture_output=True, text=True,
                         preexec_fn=entering(group))
    return json.loads(out.stdout)


def entering(group):
    """What a child calls to be inside the control group at `group`; None: it stays outside."""
    def enter():
        if group:
            with open(f"{group}/cgroup.procs", "w") as procs:
                procs.write(str(os.getpid()))
    return enter


def train(run, group=None, steps=3, force=False, watch=None):
    """Exit code, metrics of each step, standard error. `watch`: a Watch that follows the run's processes."""
    out = f"{WORK}/run"
    shutil.rmtree(out, ignore_errors=True)
    command = [PROGRAM, "train", *flags_of(run), "--data", samples(run["length"]), "--steps", str(steps), "--log-every", "1",
               "--lr", "1e-4", "--out", out] + (["--force"] if force else [])

    errors = tempfile.TemporaryFile("w+")
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=entering(group))
    if watch:
        watch.follow(started.pid)
    try:
        code = started.wait(timeout=1200)
    finally:
        if watch:
            watch.stop()
        started.kill()
    errors.seek(0)
    metrics = []
    if os.path.exists(f"{out}/metrics.jsonl"):
        metrics = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
    shutil.rmtree(out, ignore_errors=True)
    return code, metrics, errors.read()


class Watch:
    """The highest sum of the proportional set sizes of a process and its children, of what is no file's page, and of
    the files' pages. Samples as often as the kernel's walks over the page tables allow."""

    def follow(self, pid):
        self.held, self.files, self.over = 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.sample, args=(pid,))
        self.thread.start()

    def sample(self, pid):
        while not self.over.wait(0.01):
            held = files = 0
            for one in family(pid):
                for line in lines_of(f"/proc/{one}/smaps_rollup"):
                    if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                        held += int(line.split()[1]) * 1024
                    elif line.startswith("Pss_File:"):
                        files += int(line.split()[1]) * 1024
            self.held, self.files = max(self.held, held), max(self.files, files)

    def stop(self):
        self.over.set()
        self.thread.join()


def lines_of(path):
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:  # it has ended
        return []


def family(pid):
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        for line in lines_of(f"/proc/{one}/task/{one}/children"):
            found += [int(child) for child in line.split()]
    return found


class Group:
    """A control group for memory, version 1 or 2; None where there is none."""

    def __init__(self):
        self.path = None
        for root, peak, limit in (("/sys/fs/cgroup/memory", "memory.max_usage_in_bytes", "memory.limit_in_bytes"),
                                  ("/sys/fs/cgroup", "memory.peak", "memory.max")):
            path = f"{root}/intarsia-plan-{os.getpid()}"
            try:
                os.mkdir(path)
            except OSError:
                continue
            if os.path.exists(f"{path}/{peak}"):
                self.path, self.limit_file = path, f"{path}/{limit}"
                return
            os.rmdir(path)

    def limit(self, number):
        with open(self.limit_file, "w") as out:
            out.write(str(number))

    def close(self):
        if self.path:
            os.rmdir(self.path)


def random_run(generator, smallest=64 * MIB):
    """A run whose ranks hold at least `smallest`, and plan's words on it. Small enough for a slow machine."""
    while True:
        run = {"model": generator.choice(list(MODELS)), "stage": generator.choice([0, 1, 2, 3]),
               "ranks": generator.choice([1, 2, 4]), "dtype": generator.choice(["fp32", "fp32", "bf16"]),
               "recompute": generator.choice(["none", "none", "full", "selective", "2"]),
               "accumulation": generator.choice([1, 1, 3]), "copied": False, "batch": generator.choice([1, 2, 4]),
               "length": generator.choice([64, 128, 256]), "lora": generator.random() < 0.2}
        run["copied"] = run["stage"] == 3 and run["ranks"] > 1 and generator.random() < 0.4
        tokens = run["batch"] * run["length"] * run["accumulation"] * run["ranks"]
        if tokens > (512 if run["dtype"] == "bf16" else 2048):
            continue
        stage = predict(run)["stages"][run["stage"]]
        if max(stage["peak"]["total_bytes"], stage["load_peak_bytes"]) >= smallest:
            return run, stage


def name_of(run):
    return (f"{run['model']}{' LoRA' if run.get('lora') else ''} | {run['stage']}{' copied' if run['copied'] else ''} | "
            f"{run['ranks']} | {run['dtype']} | {run['recompute']} | {run['batch']} x {run['length']} x {run['accumulation']}")


HEAD = "| model | stage | ranks | dtype | recompute | batch x length x accumulation |"


def memory(count, seed):
    """At least 90 % within 3 % of the meter, none above 5 %; hosts within 5 % + 30 MiB of their processes."""
    generator, ratios, near = random.Random(seed), [], []
    print(HEAD + " predicted MiB | measured MiB | ratio | host predicted | host by the kernel | off by | files' pages |")
    print("|---|---|--:|---|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for _ in range(count):
        run, stage = random_run(generator)
        watch = Watch()
        code, metrics, errors = train(run, watch=watch)
        if code != 0:
            print(f"| {name_of(run)} | failed with {code}: {errors.strip().splitlines()[-1]} |")
            ratios.append(0)
            continue
        predicted = max(stage["peak"]["total_bytes"], stage["load_peak_bytes"])
        ratios.append(predicted / metrics[-1]["peak_bytes"])
        near.append(abs(stage["host_bytes"] - watch.held) <= 0.05 * watch.held + 30 * MIB)
        print(f"| {name_of(run)} | {predicted / MIB:.1f} | {metrics[-1]['peak_bytes'] / MIB:.1f} | {ratios[-1]:.4f} | "
              f"{stage['host_bytes'] / MIB:.0f} | {watch.held / MIB:.0f} | {(stage['host_bytes'] - watch.held) / MIB:+.0f} | "
              f"{watch.files / MIB:.0f} |", flush=True)
    within, worst = sum(abs(ratio - 1) <= 0.03 for ratio in ratios), max(abs(ratio - 1) for ratio in ratios)
    print(f"\n{len(ratios)} runs: {within} within 3 % of the meter, worst {worst * 100:.2f} %; {sum(near)} of {len(near)} "
          "hosts within 5 % + 30 MiB of the highest sum of their processes' proportional set sizes, files' pages apart.")
    return within >= 0.9 * len(ratios) and worst <= 0.05


def limits(count):
    """What plan says fits runs; what plan says does not fit by more than 5 % does not: exit 3, or the kernel's kill."""
    generator, right, forced = random.Random(60), 0, {}
    print(HEAD + " host predicted MiB | limit MiB | plan | exit | right | exit with --force |")
    print("|---|---|--:|---|---|---|--:|--:|---|--:|---|--:|")
    for _ in range(count):
        run, stage = random_run(generator, 512 * MIB)
        share = generator.choice([0.6, 0.8, 0.94, 1.06, 1.15, 1.3])  # of what plan says the run needs
        group = Group()
        if not group.path:
            print("no control group for memory can be made here: neither /sys/fs/cgroup/memory nor a v2 one with a limit")
            return False
        group.limit(int(stage["host_bytes"] * share))
        says_fits = predict(run, group=group.path)["stages"][run["stage"]]["fits"]
        code, _, _ = train(run, group.path, steps=2)
        over = train(run, group.path, steps=2, force=True)[0] if not says_fits else code
        group.close()
        forced.setdefault(share, []).append(over)
        good = says_fits == (share > 1) and (code == 0 if says_fits else code != 0)
        right += good
        print(f"| {name_of(run)} | {stage['host_bytes'] / MIB:.0f} | {stage['host_bytes'] * share / MIB:.0f} | "
              f"{'fits' if says_fits else 'does not fit'} | {code} | {'yes' if good else 'NO'} | {over} |", flush=True)
    print(f"\n{right} of {count} right. With --force, by the limit as a share of the need: " +
          ", ".join(f"{share}: {sum(code == 0 for code in codes)} of {len(codes)} ran" for share, codes in sorted(forced.items())))
    return right == count


TIMED = [("deep", 0, 1, "none", 2, 128, 1), ("deep", 0, 1, "full", 2, 128, 1), ("deep", 2, 2, "none", 2, 128, 1),
         ("deep", 3, 2, "none", 1, 256, 2), ("wide", 0, 1, "none", 2, 128, 1), ("wide", 1, 2, "none", 2, 128, 1),
         ("wide", 3, 2, "full", 2, 256, 1), ("grouped", 0, 1, "none", 4, 128, 1), ("grouped", 3, 2, "none", 4, 64, 1),
         ("tied", 2, 2, "none", 2, 128, 1), ("llama-34m", 0, 1, "none", 2, 128, 1), ("llama-34m", 3, 2, "none", 2, 128, 1)]


def time(rounds):
    """Each round measures the host's rates anew and then runs everything once, for a host's speed changes by the minute."""
    cluster, runs = f"{WORK}/cluster.json", []
    for model, stage, ranks, recompute, batch, length, accumulation in TIMED:
        runs.append({"model": model, "stage": stage, "ranks": ranks, "dtype": "fp32", "recompute": recompute, "copied": False,
                     "batch": batch, "length": length, "accumulation": accumulation})
    predicted, measured = [[] for _ in runs], [[] for _ in runs]
    for _ in range(rounds):
        subprocess.run([PROGRAM, "bench", "--ranks", "2", "--write-cluster", cluster], check=True, capture_output=True)
        for i, run in enumerate(runs):
            predicted[i].append(predict(run, "--cluster", cluster)["stages"][run["stage"]]["seconds"]["total"])
            _, metrics, _ = train(run, steps=10)
            measured[i].append(statistics.median(m["step_seconds"] for m in metrics[2:]))
    print(HEAD + " predicted s | measured s | ratio of the medians | ratio in each round |\n|---|---|--:|---|---|---|--:|--:|--:|---|")
    rows = [(statistics.median(p), statistics.median(m)) for p, m in zip(predicted, measured)]
    for run, (p, m), all_p, all_m in zip(runs, rows, predicted, measured):
        each = ", ".join(f"{one / other:.2f}" for one, other in zip(all_p, all_m))
        print(f"| {name_of(run)} | {p:.3f} | {m:.3f} | {p / m:.3f} | {each} |", flush=True)
    pairs = [(a, b) for i, a in enumerate(rows) for b in rows[:i] if abs(a[1] / b[1] - 1) > 0.15]
    ordered = sum((a[0] > b[0]) == (a[1] > b[1]) for a, b in pairs)
    print(f"\n{rounds} rounds: {sum(abs(p / m - 1) <= 0.15 for p, m in rows)} of {len(rows)} within 15 %; order right in {ordered} of "
          f"{len(pairs)} pairs that differ by more than 15 %.")
    return ordered == len(pairs) and all(abs(p / m - 1) <= 0.15 for p, m in rows)


def deepspeed():
    print("| model | ranks | stage | DeepSpeed's estimator MiB | plan: states | plan: peak | measured peak |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for model in ("deep", "wide", "llama-34m"):
        for stage in (2, 3):
            run = {"model": model, "stage": stage, "ranks": 2, "dtype": "bf16", "recompute": "none", "copied": False,
                   "batch": 1, "length": 128, "accumulation": 1}
            plan = predict(run)
            hidden, ffn, _, _, _, vocab, _ = MODELS[model]
            largest = max(4 * hidden * hidden + 3 * hidden * ffn, vocab * hidden)
            total = plan["parameters"]
            estimate = 2 * total + 18 * total / 2 if stage == 2 else 4 * largest + 18 * total / 2
            row = plan["stages"][stage]
            code, metrics, _ = train(run)
            measured = metrics[-1]["peak_bytes"] / MIB if code == 0 else float("nan")
            print(f"| {model} | 2 | {stage} | {estimate / MIB:.1f} | {row['between_steps']['total_bytes'] / MIB:.1f} | "
                  f"{row['peak']['total_bytes'] / MIB:.1f} | {measured:.1f} |", flush=True)


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    more = sys.argv[2:]
    good = True
    try:
        write_models()
        if command == "memory":
            good = memory(int(more[0]) if more else 44, int(more[1]) if len(more) > 1 else 8)
        elif command == "limits":
            good = limits(int(more[0]) if more else 60)
        elif command == "time":
            good = time(int(more[0]) if more else 5)
        elif command == "deepspeed":
            deepspeed()
        else:
            print(__doc__)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
