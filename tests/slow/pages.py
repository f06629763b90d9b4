#!/usr/bin/env python3
"""RUN/report.html in headless Chromium, light and dark, wide and narrow: nothing is cut off, nothing overlaps, every text can
be read, curves are drawn.

Usage: pages.py PROGRAM [FOLDER]      in the repository's root; screenshots stay in FOLDER
"""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from runs import call, np

try:
    from PIL import Image
except ImportError as absent:
    print(f"SKIPPED: {absent}; run ./dev test-slow, which makes an environment that has it and sets INTARSIA_PYTHON")
    sys.exit(77)

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
DARK = "--blink-settings=preferredColorScheme=0"
# Runs inside of the page, whose own policy, which allows no script, is taken out of the copy that is looked at.
PROBE = """
<pre id="found"></pre><script>
const luminance = rgb => rgb.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const numbers = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number);
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const ground = luminance(dark ? [18, 18, 18] : [255, 255, 255]);
const found = {dark, problems: [], texts: 0, curves: 0, charts: document.querySelectorAll('svg').length};
if (document.documentElement.scrollWidth > innerWidth) found.problems.push('wider than the window');
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.viewBox.baseVal, texts = [...svg.querySelectorAll('text')], name = svg.getAttribute('aria-label');
  const boxes = texts.map(text => text.getBBox());
  found.texts += texts.length;
  for (const curve of svg.querySelectorAll('path.k')) {
    found.curves += curve.getTotalLength() > 50;
    if (/NaN|Infinity/.test(curve.getAttribute('d'))) found.problems.push(name + ': bad numbers in a curve');
  }
  boxes.forEach((a, i) => {
    const word = name + ': "' + texts[i].textContent + '"';
    if (a.x < 0 || a.y < 0 || a.x + a.width > frame.width || a.y + a.height > frame.height)
      found.problems.push(word + ' is cut off');
    boxes.slice(i + 1).forEach((b, j) => {
      const wide = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const high = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      if (wide > 1 && high > 2) found.problems.push(word + ' overlaps "' + texts[i + 1 + j].textContent + '"');
    });
    const ink = luminance(numbers(getComputedStyle(texts[i]).fill));
    const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    if (contrast < 4.5) found.problems.push(word + ' has contrast ' + contrast.toFixed(1));
  });
}
document.getElementById('found').textContent = JSON.stringify(found);
</script>
"""
problems = []


def check(what, good):
    print(f"{'ok    ' if good else 'FAILED'} {what}")
    if not good:
        problems.append(what)


def pixels(picture):
    return np.asarray(Image.open(picture).convert("RGB")).astype(int)


def num_coloured(picture):
    values = pixels(picture)
    return int((values.max(-1) - values.min(-1) > 60).sum())


def browse(page, *flags, width=960, height=1400):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}",
               "--host-resolver-rules=MAP * ~NOTFOUND", *flags, f"file://{page}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def look(page, folder, name, flags, width):
    """The page laid out in a window of `width`: what PROBE finds, and a screenshot."""
    text = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page.read_text(), count=1)
    probed = folder / "probed.html"
    probed.write_text(text.replace("</body>", PROBE + "</body>"))
    dom = browse(probed, "--dump-dom", *flags, width=width)
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', dom, re.S).group(1)))
    for problem in found["problems"][:10]:
        check(f"{name}: {problem}", False)
    check(f"{name}: {found['texts']} texts and {found['curves']} curves in {found['charts']} charts, all in their place",
          found["charts"] >= 6 and found["curves"] >= 6 and found["texts"] >= 60 and not found["problems"])
    check(f"{name}: the scheme that was asked for", found["dark"] == (DARK in flags))
    picture = folder / f"{name}.png"
    browse(page, f"--screenshot={picture}", *flags, width=width, height=3000)
    ground = int(np.median(pixels(picture)))
    check(f"{name}: ground of brightness {ground}", ground < 60 if DARK in flags else ground > 230)
    coloured = num_coloured(picture)
    check(f"{name}: {coloured} coloured pixels", coloured > 3000)


def main():
    if BROWSER is None:
        print("SKIPPED: no chromium-headless-shell and no chromium; apt-get install chromium-headless-shell")
        return 77
    program = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else made).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        job = pathlib.Path(made).resolve() / "job"
        call(program, "example", "cp", "pretrain", job)
        call(program, "tokenizer", "train", "--vocab", 512, "--out", job / "model", job / "data" / "stories.jsonl")
        call(program, "train", "--model", job / "model", "--init", "random", "--data", job / "data" / "stories.jsonl",
             "--eval-fraction", 0.1, "--eval-every", 10, "--seq-len", 128, "--batch-size", 4, "--lr", 2e-3, "--warmup", 10,
             "--schedule", "cosine", "--ranks", 2, "--stage", 3, "--steps", 60, "--dtype", "fp16", "--sample-every", 30,
             "--sample-prompts", "One morning Mira went to", "<b>Under</b> a stone & beside it", "--out", job / "run")
        page = job / "run" / "report.html"
        for name, flags, width in [("light", [], 960), ("dark", [DARK], 960), ("narrow", [], 500)]:
            look(page, folder, name, flags, width)
        browse(job / "run" / "loss.svg", f"--screenshot={folder / 'loss.png'}", width=760, height=300)
        coloured = num_coloured(folder / "loss.png")
        check(f"loss.svg: {coloured} coloured pixels", coloured > 300)
    return 1 if problems else 0


sys.exit(main())
