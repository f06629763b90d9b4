#!/usr/bin/env bash
# What the loader costs of a training step: data_seconds of step_seconds in metrics.jsonl, over the steps after the first ten.
# Usage: bench/loader.sh [PROGRAM [MODEL...]]   MODEL: small (SmolLM2's width, a tenth of its layers) and tiny, where nothing hides
# the loader.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${1:-build/bin/intarsia}
models=("${@:2}"); [ ${#models[@]} -gt 0 ] || models=(small tiny)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 - "$work" <<'PYTHON'
import json, pathlib, random, sys
work, words = pathlib.Path(sys.argv[1]), []
random.seed(0)
for _ in range(4000):
    words.append("".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randrange(2, 9))))
def text(count):
    return " ".join(words[min(3999, int(random.paretovariate(0.6)) - 1)] for _ in range(count))
with open(work / "text.jsonl", "w") as out:
    for _ in range(6000):
        out.write(json.dumps({"text": text(random.randrange(20, 300))}) + "\n")
with open(work / "chat.jsonl", "w") as out:
    for _ in range(6000):
        out.write(json.dumps({"messages": [{"role": "user", "content": text(20)}, {"role": "assistant", "content": text(60)}]}) + "\n")
shapes = {"small": (576, 1536, 3, 9, 3, 49152), "tiny": (64, 176, 2, 4, 4, 512)}
for name, (hidden, inner, layers, heads, keys, vocab) in shapes.items():
    (work / name).mkdir()
    (work / name / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": keys, "max_position_embeddings": 1024, "tie_word_embeddings": True}))
PYTHON
"$program" tokenizer train --vocab 512 --special '<|user|>' --special '<|assistant|>' --out "$work/tokenizer" "$work/text.jsonl" 2>/dev/null
for name in small tiny; do
  cp "$work"/tokenizer/*.json "$work/$name/"
  printf '{%%- for m in messages -%%}<|{{ m.role }}|>{{ m.content }}<|endoftext|>{%%- endfor -%%}{%%- if add_generation_prompt -%%}<|assistant|>{%%- endif -%%}' > "$work/$name/chat_template.jinja"
done
printf '%-8s %-26s %12s %12s %8s\n' model data 'step ms' 'loader ms' share
measure() {
  local name=$1 what=$2 steps=$3; shift 3
  rm -rf "$work/run"
  "$program" train --model "$work/$name" --init random --ranks 2 --stage 3 --threads 1 --steps "$steps" --out "$work/run" "$@" 2>/dev/null >&2
  python3 - "$work/run/metrics.jsonl" "$name" "$what" <<'PYTHON'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])][10:]
step, data = (sum(row[key] for row in rows) / len(rows) * 1000 for key in ("step_seconds", "data_seconds"))
print(f"{sys.argv[2]:8} {sys.argv[3]:26} {step:12.2f} {data:12.4f} {100 * data / step:7.3f}%")
PYTHON
}
for name in "${models[@]}"; do
  steps=20; [ $name = small ] || steps=110
  measure $name 'text, concat' $steps --data "$work/text.jsonl" --batch-size 2 --seq-len 256
  measure $name 'text, isolate' $steps --data "$work/text.jsonl" --batch-size 2 --seq-len 256 --pack isolate --too-long truncate
  measure $name 'chats, off' $steps --data "$work/chat.jsonl" --batch-size 2 --seq-len 256 --pack off --too-long truncate
  measure $name 'two sources, weighted' $steps --data "$work/text.jsonl:0.7" "$work/chat.jsonl:0.3" --batch-size 2 --seq-len 256 --pack isolate --too-long truncate
done
